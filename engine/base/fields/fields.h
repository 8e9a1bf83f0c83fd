// Fields: the arguments of a layer, an optimizer, a job, a data source or a command, declared once
// as a table. The table serves to check calls, to write error messages, to read flags and to show
// help.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"

namespace strata {

enum class FieldKind {
  kBool,      ///< true or false
  kInt,       ///< a whole number, by default at most kLargestSize; canonical: an integer
  kNumber,    ///< canonical: a double
  kString,    ///< any text
  kChoice,    ///< one of `choices`
  kSize,      ///< an integer or a list of `length` integers; canonical: the list
  kShape,     ///< an integer or a list of integers; canonical: the list
  kNumbers,   ///< `length` numbers (0 = any number of them); canonical: a list of doubles
  kDType,     ///< canonical: the dtype's full name, "float32"
  kFunction,  ///< a Lua function
  /// A table; the code that reads it checks its names against `members`.
  kTable,
  /// Any value; the code that reads it checks it.
  kAny,
};

struct Field;
using FieldTable = std::vector<Field>;

/// One argument, option or key. Tables are written with the factories below:
///   Field::Int("in_features", "size of each input sample").AtLeast(1),
///   Field::Size("stride", 2, "step of the window").AtLeast(1).Default(1),
/// A field is required unless Default() or Optional() says otherwise.
struct Field {
  std::string name;
  FieldKind kind = FieldKind::kAny;
  std::string help;  ///< one line, with the unit
  bool required = true;
  bool takes_none = false;          ///< null and the string "none" are valid
  bool named_only = false;          ///< cannot be given by position, as after `*` in Python
  bool elements_take_none = false;  ///< kSize, kShape: each element may be null or "none"
  Value fallback;                   ///< the canonical default
  double least = -std::numeric_limits<double>::infinity();  ///< the lower limit of each number
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  ///< numbers must be greater than `least`
  bool below_most = false;   ///< numbers must be less than `most`
  int length = 0;            ///< kSize, kNumbers
  /// kChoice: the valid strings. Other kinds: strings that are valid besides.
  std::vector<std::string> choices;
  /// For arguments of PyTorch that Strata refuses: the reason, and what to use instead.
  std::string refused;
  /// The missing feature that values other than the default need.
  std::string comes_later;
  std::vector<const FieldTable*> members;  ///< kTable: one of these tables describes the value
  Value flag_value;  ///< what --name without a value means; null = the flag needs a value

  static Field Bool(std::string name, std::string help);
  static Field Int(std::string name, std::string help);
  static Field Number(std::string name, std::string help);
  static Field String(std::string name, std::string help);
  static Field Choice(std::string name, std::vector<std::string> choices, std::string help);
  static Field Size(std::string name, int length, std::string help);
  static Field Shape(std::string name, std::string help);
  static Field Numbers(std::string name, int length, std::string help);
  static Field DType(std::string name, std::string help);
  static Field Function(std::string name, std::string help);
  static Field Table(std::string name, std::vector<const FieldTable*> members, std::string help);
  static Field Any(std::string name, std::string help);
  /// Declares an argument of PyTorch that Strata does not take. It still occupies its position, so
  /// that the positions of later arguments are those of PyTorch.
  static Field Refused(std::string name, std::string why);

  Field& Default(Value value);              ///< `value` may have any form that the field takes
  Field& Optional();                        ///< the default is none (null)
  Field& OnlyDefaultYet(std::string what);  ///< other values are refused: "WHAT comes later"
  /// Also takes none (null). Unlike Optional(), this does not make none the default.
  Field& OrNone() { return Set(&Field::takes_none, true); }
  Field& NamedOnly() { return Set(&Field::named_only, true); }
  Field& AtLeast(double value) { return Set(&Field::least, value); }
  Field& AtMost(double value) { return Set(&Field::most, value); }
  Field& Above(double value) { return AtLeast(value).Set(&Field::above_least, true); }
  Field& Below(double value) { return AtMost(value).Set(&Field::below_most, true); }
  /// kInt, kSize, kAny: these strings are valid too.
  Field& Or(std::vector<std::string> strings) { return Set(&Field::choices, std::move(strings)); }
  /// kSize, kShape: an element may also be none.
  Field& ElementsOrNone() { return Set(&Field::elements_take_none, true); }
  /// --name without a value means --name=VALUE. Any other value has to be written with "=".
  Field& FlagValue(Value value) { return Set(&Field::flag_value, std::move(value)); }

  /// The values that the field takes, for messages: "an integer or a list of 2 integers, at least
  /// 1".
  std::string Expected() const;

 private:
  template <class T>
  Field& Set(T Field::*member, T value) {
    this->*member = std::move(value);
    return *this;
  }
};

/// A call as the user wrote it, before any check: `nn.Conv2d{3, 64, kernel_size=11}`.
struct Call {
  std::string subject = {};       ///< "Conv2d", "the optimizer sgd", "the job"
  std::string where = {};         ///< "alexnet.lua:12"; "" = unknown, or the command line
  std::string noun = "argument";  ///< the word for a name in messages: "argument", "key", "option"
  Value::List positional = {};    ///< null = left out (a nil in Lua)
  Value::Map named = {};
};

/// Turns a plain value into a call. The elements of a list are positional arguments. The entries of
/// a map are named arguments, except that the keys "1", "2", ... are positions: a Lua table such as
/// {"sgd", lr=0.1} is the map {"1"="sgd", lr=0.1}. Null is an empty call. Any other value is the
/// first positional argument.
Call CallOf(const Value& value);

/// Returns the call's values in canonical form: a map of all fields in the table's order, with
/// defaults; refused fields are left out. Throws ConfigError for unknown names, missing fields, a
/// field given twice, too many positions, wrong types, numbers beyond their limits, and fields or
/// values that are refused or not built yet. The message has the place, the subject, the field, the
/// expected and the given value, and the nearest valid name.
Value Canonicalize(const FieldTable& table, const Call& call);

/// As Canonicalize(), but returns only the given fields: it fills in no defaults and requires no
/// field. It is for overrides: a field that is named with null is null in the result, so that the
/// override puts the field's default back in the place of an earlier value.
Value CanonicalizeGiven(const FieldTable& table, const Call& call);

/// Returns one value in the field's canonical form. Throws as Canonicalize() does, with the place
/// and the subject of `call`.
Value CanonicalizeField(const Field& field, const Value& value, const Call& call);

/// Reads a flag's text as a value of the field's kind: "0,19,22" -> {0, 19, 22}, "0.1" -> 0.1,
/// "true" -> true. Without a field (null), or for kAny, the kind is guessed: a boolean, a number, a
/// list if there are commas, else a string. It checks no limits; Canonicalize() does.
Value ParseText(const Field* field, std::string_view text);

/// Translates a name that users of PyTorch or DeepSpeed know into the path of our key, such as
/// "optimizer.lr", or into a data step, such as "data:take(n)". Returns "" for an unknown name.
std::string_view OurKey(std::string_view theirs);

/// Replaces '-' by '_': "hidden_size" for "hidden-size".
std::string FoldedName(std::string_view name);
/// The field with this name, or null. '-' in `name` equals '_'.
const Field* FindField(const FieldTable& table, std::string_view name);
/// The names that a user may write. Refused fields are left out.
std::vector<std::string> FieldNames(const FieldTable& table);

/// Help for the prompt and for --help: a table of the fields with name, valid values, default and
/// help. If that table is wider than 80 columns, each field's help in lines that fit.
std::string FieldHelp(const FieldTable& table);
/// `first` followed by the words, broken into lines of at most 80 columns. Further lines are
/// indented to the column of the first word.
std::string Wrapped(std::string first, std::string_view words);

/// The beginning of an error message: "alexnet.lua:12: ", or "" when `where` is "".
std::string Place(std::string_view where);

}  // namespace strata
