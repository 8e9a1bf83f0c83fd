#include "engine/base/fields/fields.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

Field Make(std::string name, FieldKind kind, std::string help, int length = 0) {
  Field field;
  field.name = std::move(name);
  field.kind = kind;
  field.help = std::move(help);
  field.length = length;
  if (kind == FieldKind::kInt || kind == FieldKind::kSize || kind == FieldKind::kShape) {
    field.AtLeast(-static_cast<double>(kLargestSize)).AtMost(static_cast<double>(kLargestSize));
  }
  return field;
}

std::string Quoted(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(Str('"', word, '"'));
  return Join(quoted, ", ");
}

std::string ExpectedKind(const Field& field) {
  switch (field.kind) {
    case FieldKind::kBool:
      return "true or false";
    case FieldKind::kInt:
      return "an integer";
    case FieldKind::kNumber:
      return "a number";
    case FieldKind::kString:
      return "a string";
    case FieldKind::kChoice:
      return field.choices.size() == 1 ? Quoted(field.choices)
                                       : Str("one of ", Quoted(field.choices));
    case FieldKind::kSize:
      return Str("an integer or a list of ", Plural(field.length, "integer"));
    case FieldKind::kShape:
      return "an integer or a list of integers";
    case FieldKind::kNumbers:
      return field.length > 0 ? Str("a list of ", Plural(field.length, "number"))
                              : "a number or a list of numbers";
    case FieldKind::kDType:
      return "a dtype such as \"float32\"";
    case FieldKind::kFunction:
      return "a function";
    case FieldKind::kTable:
      return "a table";
    case FieldKind::kAny:
      return "a value";
  }
  return "";
}

/// The limits for messages, such as ", at least 1". The limit kLargestSize is left out, since all
/// sizes have it.
std::string ExpectedLimits(const Field& field) {
  constexpr double kSilent = static_cast<double>(kLargestSize);
  std::string text;
  if (std::abs(field.least) < kSilent) {
    text += Str(field.above_least ? ", above " : ", at least ", FormatDouble(field.least));
  }
  if (std::abs(field.most) < kSilent) {
    text += Str(field.below_most ? ", below " : ", at most ", FormatDouble(field.most));
  }
  return text;
}

}  // namespace

Field Field::Bool(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kBool, std::move(help));
}

Field Field::Int(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kInt, std::move(help));
}

Field Field::Number(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kNumber, std::move(help));
}

Field Field::String(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kString, std::move(help));
}

Field Field::Choice(std::string name, std::vector<std::string> choices, std::string help) {
  Field field = Make(std::move(name), FieldKind::kChoice, std::move(help));
  field.choices = std::move(choices);
  return field;
}

Field Field::Size(std::string name, int length, std::string help) {
  return Make(std::move(name), FieldKind::kSize, std::move(help), length);
}

Field Field::Shape(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kShape, std::move(help));
}

Field Field::Numbers(std::string name, int length, std::string help) {
  return Make(std::move(name), FieldKind::kNumbers, std::move(help), length);
}

Field Field::DType(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kDType, std::move(help));
}

Field Field::Function(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kFunction, std::move(help));
}

Field Field::Table(std::string name, std::vector<const FieldTable*> members, std::string help) {
  Field field = Make(std::move(name), FieldKind::kTable, std::move(help));
  field.members = std::move(members);
  return field;
}

Field Field::Any(std::string name, std::string help) {
  return Make(std::move(name), FieldKind::kAny, std::move(help));
}

Field Field::Refused(std::string name, std::string why) {
  Field field = Make(std::move(name), FieldKind::kAny, "");
  field.required = false;
  field.refused = std::move(why);
  return field;
}

Field& Field::Default(Value value) {
  required = false;
  fallback = CanonicalizeField(*this, value, {.subject = "a field table"});
  return *this;
}

Field& Field::Optional() {
  required = false;
  return OrNone();
}

Field& Field::OnlyDefaultYet(std::string what) {
  STRATA_CHECK(!required) << name;
  comes_later = std::move(what);
  return *this;
}

std::string Field::Expected() const {
  std::string text = ExpectedKind(*this) + ExpectedLimits(*this);
  if (kind != FieldKind::kChoice && !choices.empty()) text += Str(", or ", Quoted(choices));
  if (takes_none) text += ", or none";
  return text;
}

std::string FoldedName(std::string_view name) {
  std::string folded(name);
  std::ranges::replace(folded, '-', '_');
  return folded;
}

const Field* FindField(const FieldTable& table, std::string_view name) {
  const auto found = std::ranges::find(table, FoldedName(name), &Field::name);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> FieldNames(const FieldTable& table) {
  std::vector<std::string> names;
  for (const Field& field : table) {
    if (field.refused.empty()) names.push_back(field.name);
  }
  return names;
}

std::string Place(std::string_view where) { return where.empty() ? "" : Str(where, ": "); }

}  // namespace strata
