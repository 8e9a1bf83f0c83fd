// Value: plain data, such as a Lua table or a JSON text holds. Scripts' tables and flags reach the
// engine as Values, ranks compare their jobs as Values, and `strata.json` reads and writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

/// A reference to a Lua function, as data.
struct FunctionRef {
  /// Identifies the function in the Lua state (or host) that made it; meaningless elsewhere.
  int id = -1;
  std::string where;   ///< where it is defined: "alexnet.lua:12"
  std::string digest;  ///< the digest of its byte code
  /// True for the same code at the same place, on any rank; `id` is not compared.
  bool operator==(const FunctionRef& other) const {
    return where == other.where && digest == other.digest;
  }
};

/// null, a boolean, an integer, a double, a string, a function, a list, or a map whose keys keep
/// the order in which they were set. An integer and a double are different kinds, but `as_double()`
/// accepts both and `as_int()` accepts a double with a whole value.
class Value {
 public:
  using List = std::vector<Value>;
  using Entry = std::pair<std::string, Value>;
  using Map = std::vector<Entry>;
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kFunction, kList, kMap };

  Value() = default;
  Value(bool b) : data_(b) {}
  Value(int i) : data_(static_cast<int64_t>(i)) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(const char* s) : data_(std::string(s)) {}
  Value(std::string s) : data_(std::move(s)) {}
  Value(std::string_view s) : data_(std::string(s)) {}
  Value(FunctionRef f) : data_(std::move(f)) {}
  Value(List list) : data_(std::move(list)) {}
  static Value MakeMap(Map entries = {});
  static Value IntList(const std::vector<int64_t>& ints);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_number() const { return kind() == Kind::kInt || kind() == Kind::kDouble; }
  /// True for an integer, and for a double with a whole value that fits an int64.
  bool is_int() const;
  bool is_string() const { return kind() == Kind::kString; }
  bool is_function() const { return kind() == Kind::kFunction; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_map() const { return kind() == Kind::kMap; }

  /// The content. Each throws ConfigError "expected X, got Y" if the Value is of another kind.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const FunctionRef& as_function() const;
  const List& as_list() const;
  const Map& as_map() const;
  /// The elements of a list of integers. Throws ConfigError as the other functions do.
  std::vector<int64_t> as_ints() const;

  /// The entry of a map, or nullptr where there is none. A null Value has no entries. Throws
  /// ConfigError for other kinds.
  const Value* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  /// As Find(), but a missing entry gives a null Value.
  const Value& operator[](std::string_view key) const;
  /// Sets or replaces an entry; a null Value becomes a map first. Returns *this.
  Value& Set(std::string_view key, Value value);
  /// Removes the entry of a map, if there is one.
  void Erase(std::string_view key);
  /// Sets the entry at a dotted path ("optimizer.lr") and creates the maps that are missing on the
  /// way. Throws ConfigError if a value on the way is not a map.
  void SetPath(std::string_view dotted, Value value);
  /// Appends to a list; a null Value becomes a list first.
  void Append(Value value);

  /// True if both are of the same kind with equal content. An integer never equals a double. The
  /// order of a map's entries does not count, since Lua tables have no order.
  bool operator==(const Value& other) const;

  /// The text behind "got" in an error message: `the string "abc"`, `the number 3.5`, `the list {1,
  /// 2}`, `a list of 9`, `nothing`. Long strings are cut off.
  std::string Describe() const;
  /// The value as Lua would write it, on one line: `{3, 64, kernel_size=11}`.
  std::string ToLua() const;

  /// The value as JSON text; `indent` < 0 gives one line. Integers stay integers and doubles stay
  /// doubles ("3" and "3.0"). Not-a-number and the infinities become the strings "NaN", "Infinity"
  /// and "-Infinity". Bytes that are not UTF-8 become U+FFFD. A function becomes {"function":
  /// where, "digest": ...}.
  std::string ToJson(int indent = -1) const;
  /// Calls ParseJson() of value_json.h with its default rules: at most 1,000 levels of nesting.
  static Value FromJson(std::string_view text);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, FunctionRef, List, Map> data_;
};

/// The entries of both maps. If both have a key, the value of `over` is taken.
Value Merged(Value base, const Value& over);

/// The first place where `a` and `b` differ, as a dotted path with both values:
/// `layers.3.args.out_features: 64 against 65`. Returns "" if they are equal.
std::string FirstDifference(const Value& a, const Value& b);

/// The 64-bit FNV-1a hash of a text, as 16 hex digits. It is not cryptographic: it detects
/// accidental changes, not forgery.
std::string Digest(std::string_view text);

}  // namespace strata
