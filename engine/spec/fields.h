// Fields: what a layer, an optimizer, a job, a data source or a command takes, declared once as
// data. The check of a call, its error messages, the typing of flags and the help at the prompt all
// come from the same table.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

enum class FieldKind {
  kBool,      ///< true or false
  kInt,       ///< a whole number, no larger than kLargestSize unless said; canonical: an integer
  kNumber,    ///< canonical: a double
  kString,    ///< any text
  kChoice,    ///< one of `choices`
  kSize,      ///< an integer or `length` integers; canonical: a list of `length` integers
  kShape,     ///< an integer or integers; canonical: a list of integers
  kNumbers,   ///< numbers, exactly `length` unless that is 0; canonical: a list of doubles
  kDType,     ///< canonical: the dtype's full name, "float32"
  kFunction,  ///< a Lua function
  kTable,     ///< a table whose names are checked by its owner against `members`
  kAny,       ///< its owner checks it
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
  bool takes_none = false;          ///< nothing is a value of its own: null, or the string "none"
  bool named_only = false;          ///< has no position, as after `*` in Python
  bool elements_take_none = false;  ///< kSize, kShape: so may each element (AdaptiveAvgPool2d)
  Value fallback;                   ///< the canonical value when it is left out
  double least = -std::numeric_limits<double>::infinity();  ///< of each number
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  ///< `least` itself is too small
  bool below_most = false;   ///< `most` itself is too large
  int length = 0;
  std::vector<std::string> choices;  ///< kChoice; kSize and kAny: strings that it takes as well
  std::vector<std::string> later_choices;  ///< known names that a later build brings
  std::string refused;      ///< PyTorch has it, Strata never will: why, and what to use instead
  std::string comes_later;  ///< what a value other than the default would ask for: not built yet
  std::vector<const FieldTable*> members;  ///< kTable: the tables of which one holds
  Value alone;  ///< as a flag without a value: what it means; null = such a flag needs one

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
  /// An argument that PyTorch has and Strata does not take. It keeps its position.
  static Field Refused(std::string name, std::string why);

  Field& Default(Value value);  ///< any form that the field itself takes
  Field& Optional();            ///< left out = none (null)
  Field& OrNone();              ///< takes none, but its default is another
  Field& NamedOnly();
  Field& AtLeast(double value);
  Field& AtMost(double value);
  Field& Above(double value);
  Field& Below(double value);
  Field& Or(std::vector<std::string> strings);  ///< kSize, kAny: takes these strings as well
  Field& Later(std::vector<std::string> choices);
  Field& Alone(Value value);  ///< --name means --name=VALUE, and takes no value but with "="
  Field& OnlyDefaultYet(std::string what);  ///< other values are refused: "WHAT comes later"

  /// "an integer or a list of 2 integers, at least 1".
  std::string Expected() const;
};

/// What somebody wrote, before it is checked: `nn.Conv2d{3, 64, kernel_size=11}`.
struct Call {
  std::string subject = {};       ///< "Conv2d", "the optimizer sgd", "the job"
  std::string where = {};         ///< "alexnet.lua:12"; "" = unknown, or the command line
  std::string noun = "argument";  ///< what its names are called: "argument", "key", "option"
  Value::List positional = {};    ///< null = left out (a nil in Lua)
  Value::Map named = {};
};

/// The call that a plain value is: a list gives positional ones, a map gives named ones, except
/// that its keys "1", "2", ... are positions (a Lua table such as {"sgd", lr=0.1} becomes the map
/// {"1"="sgd", lr=0.1}); null gives an empty call, anything else is the first positional one.
Call CallOf(const Value& value);

/// The call's values in canonical form: a map with every field of the table, in its order,
/// defaults included (refused fields are absent). Throws ConfigError with place, subject, field,
/// what was expected, what came and the nearest name: for unknown names, missing ones, one given
/// twice, too many positions, wrong types, limits, refused and not yet built ones.
Value Canonicalize(const FieldTable& table, const Call& call);

/// As Canonicalize, but only what was given: no defaults, nothing is required. For overrides.
Value CanonicalizeGiven(const FieldTable& table, const Call& call);

/// One value in the field's canonical form. `call` only says whose field it is.
Value CanonicalizeField(const Field& field, const Value& value, const Call& call);

/// A flag's text as the value that the field's kind makes of it: "0,19,22" -> {0, 19, 22},
/// "0.1" -> 0.1, "true" -> true; text where the kind is text. A null `field` (or kAny) guesses:
/// none, booleans, numbers, lists by comma, else text. Does not check limits.
Value ParseText(const Field* field, std::string_view text);

/// The field of that name ('-' counts as '_'), or null.
const Field* FindField(const FieldTable& table, std::string_view name);
/// Names that a user may write: no refused ones.
std::vector<std::string> FieldNames(const FieldTable& table);

/// For the prompt and for --help: one line per field with name, what it takes, default, help.
std::string FieldHelp(const FieldTable& table);

/// "alexnet.lua:12: " or "".
std::string Place(std::string_view where);

}  // namespace strata
