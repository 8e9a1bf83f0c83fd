// Canonicalize(), which checks a call against its table of fields, and ParseText(), which reads a
// flag's text. Both are declared in fields.h.
//
// Assign() first maps positions and names to fields; Check() then converts each given value to its
// field's canonical form and fills in the defaults. One function per kind does the conversion. The
// result is a map in the order of the table.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/base/text.h"

namespace strata {
namespace {

[[noreturn]] void Refuse(const Call& call, const std::string& message) {
  throw ConfigError(Str(Place(call.where), call.subject, message));
}

bool IsNone(const Value& value) {
  return value.is_null() || (value.is_string() && value.as_string() == "none");
}

bool InLimits(const Field& field, double number) {
  return std::isfinite(number) &&
         (field.above_least ? number > field.least : number >= field.least) &&
         (field.below_most ? number < field.most : number <= field.most);
}

bool IsChoice(const Field& field, const Value& value) {
  return value.is_string() && std::find(field.choices.begin(), field.choices.end(),
                                        value.as_string()) != field.choices.end();
}

/// One function per kind converts a value to the kind's canonical form. Each returns nullopt if the
/// value does not fit the field.
std::optional<Value> Integer(const Field& field, const Value& value) {
  if (IsChoice(field, value)) return value;
  if (!value.is_int() || !InLimits(field, value.as_double())) return std::nullopt;
  return Value(value.as_int());
}

std::optional<Value> Number(const Field& field, const Value& value) {
  if (!value.is_number() || !InLimits(field, value.as_double())) return std::nullopt;
  return Value(value.as_double());
}

/// Converts one element of a list; it may be none if the field has elements_take_none.
template <auto kind>
std::optional<Value> Element(const Field& field, const Value& value) {
  if (field.elements_take_none && IsNone(value)) return Value();
  return kind(field, value);
}

template <class Element>
std::optional<Value> ListOf(const Field& field, const Value& value, Element element) {
  if (!value.is_list()) return std::nullopt;
  Value::List list;
  for (const Value& item : value.as_list()) {
    std::optional<Value> canonical = element(field, item);
    if (!canonical) return std::nullopt;
    list.push_back(*std::move(canonical));
  }
  return Value(std::move(list));
}

std::optional<Value> Size(const Field& field, const Value& value) {
  if (IsChoice(field, value)) return value;
  if (value.is_int()) return Size(field, Value::List(static_cast<size_t>(field.length), value));
  if (!value.is_list() || value.as_list().size() != static_cast<size_t>(field.length)) {
    return std::nullopt;
  }
  return ListOf(field, value, Element<Integer>);
}

std::optional<Value> Shape(const Field& field, const Value& value) {
  if (value.is_int()) return Shape(field, Value::List{value});
  return ListOf(field, value, Element<Integer>);
}

/// A single number is taken as a list of one number, unless the field demands a certain count.
std::optional<Value> Numbers(const Field& field, const Value& value) {
  if (value.is_number() && field.length == 0) return Numbers(field, Value::List{value});
  if (!value.is_list()) return std::nullopt;
  const size_t size = value.as_list().size();
  if (field.length > 0 ? size != static_cast<size_t>(field.length) : size == 0) return std::nullopt;
  return ListOf(field, value, Element<Number>);
}

std::optional<Value> CanonicalForm(const Field& field, const Value& value) {
  switch (field.kind) {
    case FieldKind::kBool:
      return value.is_bool() ? std::optional(value) : std::nullopt;
    case FieldKind::kInt:
      return Integer(field, value);
    case FieldKind::kNumber:
      return Number(field, value);
    case FieldKind::kString:
      return value.is_string() ? std::optional(value) : std::nullopt;
    case FieldKind::kChoice:
      return IsChoice(field, value) ? std::optional(value) : std::nullopt;
    case FieldKind::kSize:
      return Size(field, value);
    case FieldKind::kShape:
      return Shape(field, value);
    case FieldKind::kNumbers:
      return Numbers(field, value);
    case FieldKind::kDType:
      return value.is_string() ? std::optional<Value>(DTypeName(ParseDType(value.as_string())))
                               : std::nullopt;
    case FieldKind::kFunction:
      return value.is_function() ? std::optional(value) : std::nullopt;
    case FieldKind::kTable:
    case FieldKind::kAny:
      return value;
  }
  return std::nullopt;
}

/// A hint for a number above `most` that names the limit. Field::Expected() leaves out the limit
/// kLargestSize, which all sizes have, so the message would not show it otherwise.
std::string TooLarge(const Field& field, const Value& value) {
  const bool is_large = value.is_int() && value.as_double() > field.most;
  return is_large ? Str("; the largest is ", FormatDouble(field.most)) : "";
}

/// Suggests the nearest choice, but only if it begins with the same letter. The error lists all
/// choices anyway, and a near choice with another first letter is seldom what was meant: "gpu" is
/// near to "cpu" and means "cuda".
std::string SuggestChoice(const Field& field, const Value& value) {
  if (!value.is_string() || field.choices.empty()) return "";
  const std::string nearest = Nearest(value.as_string(), field.choices);
  const auto first = [](const std::string& text) {
    return std::tolower(static_cast<unsigned char>(text[0]));
  };
  if (nearest.empty() || first(nearest) != first(value.as_string())) return "";
  return Str("; did you mean \"", nearest, "\"?");
}

std::vector<const Field*> Positions(const FieldTable& table) {
  std::vector<const Field*> positions;
  for (const Field& field : table) {
    if (!field.named_only) positions.push_back(&field);
  }
  return positions;
}

/// Our name for the argument that other engines call `name`, if the table or the subject of the
/// call has it; otherwise "".
std::string_view OtherNameIn(const FieldTable& table, const Call& call, std::string_view name) {
  const std::string_view ours = OurKey(name), leaf = ours.substr(ours.rfind('.') + 1);
  const bool is_its_key = call.subject.find(ours.substr(0, ours.find('.'))) != ours.npos;
  const bool is_step = ours.find(':') != ours.npos;
  return is_step || (is_its_key && FindField(table, leaf)) ? leaf : "";
}

[[noreturn]] void RefuseName(const FieldTable& table, const Call& call, const std::string& name) {
  const std::vector<std::string> names = FieldNames(table);
  const std::string takes = names.empty() ? Str("; it takes no ", call.noun, "s") : "";
  const std::string_view ours = OtherNameIn(table, call, name);
  const std::string hint =
      ours.empty() ? DidYouMean(name, names, 16) : Str("; did you mean \"", ours, "\"?");
  Refuse(call, Str(" has no ", call.noun, " \"", name, "\"", hint, takes));
}

/// Returns the values of a call by field name. An entry with a null value means that the call named
/// the field and gave it nil.
Value Assign(const FieldTable& table, const Call& call) {
  Value given = Value::MakeMap();
  const std::vector<const Field*> positions = Positions(table);
  size_t count = call.positional.size();
  while (count > 0 && call.positional[count - 1].is_null()) --count;
  if (count > positions.size()) {
    std::vector<std::string> names;
    for (const Field* field : positions) names.push_back(field->name);
    const std::string which = names.empty() ? "" : Str(" (", Join(names, ", "), ")");
    Refuse(call, Str(" takes at most ", Plural(static_cast<int64_t>(names.size()), call.noun),
                     " by position", which, ", got ", count));
  }
  for (size_t i = 0; i < count; ++i) {
    if (!call.positional[i].is_null()) given.Set(positions[i]->name, call.positional[i]);
  }
  for (const auto& [name, value] : call.named) {
    const Field* field = FindField(table, name);
    if (!field) RefuseName(table, call, name);
    if (!given[field->name].is_null()) {
      Refuse(call, Str(": ", field->name, " is given twice, by position and by name"));
    }
    given.Set(field->name, value);
  }
  return given;
}

Value Check(const FieldTable& table, const Call& call, bool complete) {
  const Value given = Assign(table, call);
  Value result = Value::MakeMap();
  for (const Field& field : table) {
    const Value& value = given[field.name];
    if (!value.is_null()) {
      result.Set(field.name, CanonicalizeField(field, value, call));
    } else if (complete && field.required) {
      Refuse(call, Str(" needs ", field.name, ": ", field.help, " (", field.Expected(), ")"));
    } else if (complete && field.refused.empty()) {
      result.Set(field.name, field.fallback);
    } else if (!complete && given.Has(field.name)) {
      result.Set(field.name, Value());
    }
  }
  return result;
}

bool IsPosition(const std::string& key) {
  return !key.empty() && key.size() < 4 && key[0] != '0' &&
         std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<Value> ParseBool(std::string_view text) {
  if (text == "true" || text == "yes" || text == "on") return Value(true);
  if (text == "false" || text == "no" || text == "off") return Value(false);
  return std::nullopt;
}

template <class T>
std::optional<Value> ParseAll(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return Value(number);
}

std::optional<Value> ParseNumber(std::string_view text) {
  if (auto integer = ParseAll<int64_t>(text)) return integer;
  auto number = ParseAll<double>(text);
  return number && std::isfinite(number->as_double()) ? number : std::nullopt;
}

Value GuessScalar(std::string_view text) {
  if (auto value = ParseBool(text)) return *value;
  return ParseNumber(text).value_or(Value(text));
}

/// Reads a text whose field is unknown. "type:..." is never split into a list, since a regular
/// expression may contain commas.
Value Guess(std::string_view text) {
  if (text.find(',') == std::string_view::npos || text.starts_with("type:")) {
    return GuessScalar(text);
  }
  Value::List list;
  for (const std::string& piece : Split(text, ',')) list.push_back(GuessScalar(Trim(piece)));
  return list;
}

}  // namespace

Call CallOf(const Value& value) {
  Call call;
  if (value.is_null()) return call;
  if (value.is_list()) {
    call.positional = value.as_list();
  } else if (value.is_map()) {
    for (const auto& [key, entry] : value.as_map()) {
      if (!IsPosition(key)) {
        call.named.emplace_back(key, entry);
        continue;
      }
      const size_t index = std::stoul(key) - 1;
      if (call.positional.size() <= index) call.positional.resize(index + 1);
      call.positional[index] = entry;
    }
  } else {
    call.positional = {value};
  }
  return call;
}

Value CanonicalizeField(const Field& field, const Value& value, const Call& call) {
  if (!field.refused.empty()) {
    Refuse(call, Str(" does not take ", field.name, ": ", field.refused));
  }
  if (field.takes_none && IsNone(value)) return Value();
  std::optional<Value> canonical;
  try {
    canonical = CanonicalForm(field, value);
  } catch (const ConfigError& error) {
    Refuse(call, Str(": ", field.name, ": ", error.what()));
  }
  if (!canonical) {
    Refuse(call, Str(": ", field.name, " expects ", field.Expected(), "; got ", value.Describe(),
                     TooLarge(field, value), SuggestChoice(field, value)));
  }
  if (!field.comes_later.empty() && *canonical != field.fallback) {
    const bool has_value = !field.fallback.is_null();
    Refuse(call, Str(": ", field.name, " = ", canonical->ToLua(),
                     " is not built yet: ", field.comes_later, " comes later",
                     has_value ? Str("; this build has ", field.fallback.ToLua()) : ""));
  }
  return *std::move(canonical);
}

Value Canonicalize(const FieldTable& table, const Call& call) { return Check(table, call, true); }

Value CanonicalizeGiven(const FieldTable& table, const Call& call) {
  return Check(table, call, false);
}

Value ParseText(const Field* field, std::string_view text) {
  switch (field ? field->kind : FieldKind::kAny) {
    case FieldKind::kBool:
      return ParseBool(text).value_or(Value(text));
    case FieldKind::kString:
    case FieldKind::kChoice:
    case FieldKind::kDType:
    case FieldKind::kFunction:
      return Value(text);
    case FieldKind::kNumbers: {
      const Value value = Guess(text);
      return value.is_number() ? Value(Value::List{value}) : value;
    }
    default:
      return Guess(text);
  }
}

}  // namespace strata
