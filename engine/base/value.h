// Value: the plain data that scripts, flags and JSON have in common. It is how a script's tables
// reach the engine, how a job is compared between ranks, and what `strata.json` speaks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

/// A Lua function as data. `id` finds it again in the Lua state (or host) that made it and means
/// nothing elsewhere; `where` is "alexnet.lua:12"; `digest` covers its byte code and tells whether
/// two ranks have the same function.
struct FunctionRef {
  int id = -1;
  std::string where;
  std::string digest;
  /// Equal when the function is the same code at the same place, whatever the state.
  bool operator==(const FunctionRef& other) const {
    return where == other.where && digest == other.digest;
  }
};

/// null, a boolean, an integer, a double, a string, a function, a list, or a map whose keys keep
/// the order in which they were set. Numbers: an integer and a double are different kinds, but
/// `as_double()` takes both and `as_int()` takes a double with a whole value.
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
  /// An integer, or a double with a whole value that an int64 holds.
  bool is_int() const;
  bool is_string() const { return kind() == Kind::kString; }
  bool is_function() const { return kind() == Kind::kFunction; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_map() const { return kind() == Kind::kMap; }

  /// The content. Each throws ConfigError "expected X, got Y" when the kind is another.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const FunctionRef& as_function() const;
  const List& as_list() const;
  const Map& as_map() const;
  /// A list of integers.
  std::vector<int64_t> as_ints() const;

  /// The entry of a map, or null where there is none. REQUIRES: a map or null.
  const Value* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  /// The entry of a map; a missing one gives a null Value.
  const Value& operator[](std::string_view key) const;
  /// Sets or replaces an entry; a null Value becomes a map first. Returns *this.
  Value& Set(std::string_view key, Value value);
  void Erase(std::string_view key);
  /// Sets the entry at a dotted path ("optimizer.lr"), making maps on the way. ConfigError where
  /// something on the way is not a map.
  void SetPath(std::string_view dotted, Value value);
  /// Adds to a list; a null Value becomes a list first.
  void Append(Value value);

  /// Of the same kind with the same content. The order of a map's entries does not count, since a
  /// Lua table has none; an integer never equals a double.
  bool operator==(const Value& other) const;

  /// What came, for error messages: `the string "abc"`, `the number 3.5`, `the list {1, 2}`, `a
  /// list of 9`, `nothing`. Long strings are cut off.
  std::string Describe() const;
  /// As Lua would write it, on one line: `{3, 64, kernel_size=11}`.
  std::string ToLua() const;

  /// JSON. `indent` < 0 gives one line. Integers and doubles round-trip as such ("3" and "3.0");
  /// not-a-number and infinities become "NaN", "Infinity", "-Infinity" strings; bytes that are not
  /// UTF-8 become U+FFFD. A function becomes {"function": where, "digest": ...}.
  std::string ToJson(int indent = -1) const;
  /// Throws ConfigError with line and column of the first mistake, and for more than 1,000 levels
  /// of nesting. Integers that do not fit an int64 become doubles; of equal keys the last holds.
  static Value FromJson(std::string_view text);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, FunctionRef, List, Map> data_;
};

/// The first place where `a` and `b` differ, as a dotted path with both values:
/// `layers.3.args.out_features: 64 against 65`; "" when they are equal.
std::string FirstDifference(const Value& a, const Value& b);

/// 64-bit FNV-1a of a text, as 16 hex digits. Not for hostile input.
std::string Digest(std::string_view text);

}  // namespace strata
