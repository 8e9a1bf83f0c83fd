#include "engine/job/flags/flags.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"

namespace strata {
namespace {

constexpr const char* kSubject = "the command line";

bool IsFlag(const std::string& argument) {
  return argument.size() > 2 && argument.starts_with("--");
}

/// The value of a boolean flag: --name without a text is true.
Value BoolOf(bool has_text, const std::string& text) {
  static const Field any = Field::Bool("", "");
  return has_text ? ParseText(&any, text) : Value(true);
}

/// Concatenates both values into one list; a value that is not a list counts as one element.
Value Joined(const Value& first, const Value& second) {
  Value::List list;
  for (const Value& value : {first, second}) {
    if (value.is_list()) {
      list.insert(list.end(), value.as_list().begin(), value.as_list().end());
    } else {
      list.push_back(value);
    }
  }
  return list;
}

/// If a required flag is missing and an unclaimed flag has a similar name, throws ConfigError that
/// suggests the required one. `unclaimed` are flags that neither the command nor the job knows; the
/// script may.
void CheckRequired(const FieldTable& fields, const Value& own,
                   const std::vector<std::string>& unclaimed) {
  for (const Field& field : fields) {
    if (!field.required || own.Has(field.name)) continue;
    for (const std::string& name : unclaimed) {
      if (Nearest(name, {&field.name, 1}).empty()) continue;
      throw ConfigError(
          Str(kSubject, " needs --", field.name, ": ", field.help, "; is it --", name, "?"));
    }
  }
}

}  // namespace

Flags::Flags(const std::vector<std::string>& arguments, FieldTable own_fields)
    : own_fields_(std::move(own_fields)) {
  Value own = Value::MakeMap();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      rest_.insert(rest_.end(), arguments.begin() + static_cast<int64_t>(i) + 1, arguments.end());
      break;
    }
    if (IsFlag(arguments[i])) {
      Flag flag = Read(arguments, i);
      if (flag.has_text) given_.push_back(flag.text);
      Assign(std::move(flag), own);
    } else {
      given_.push_back(arguments[i]);
      rest_.push_back(arguments[i]);
    }
  }
  std::vector<std::string> unclaimed;
  for (const Flag& flag : unclaimed_) unclaimed.push_back(flag.name);
  CheckRequired(own_fields_, own, unclaimed);
  own_ = Canonicalize(own_fields_, {.subject = kSubject, .noun = "flag", .named = own.as_map()});
}

const Field* Flags::FieldOf(std::string_view name) const {
  const Field* own = FindField(own_fields_, name);
  return own ? own : FindJobField(name);
}

/// Reads the flag at index `i`, and advances `i` to the last argument that belongs to it.
Flags::Flag Flags::Read(const std::vector<std::string>& arguments, size_t& i) const {
  const std::string body = arguments[i].substr(2);
  const size_t equals = body.find('=');
  Flag flag;
  flag.name = FoldedName(std::string_view(body).substr(0, equals));
  if (equals != std::string::npos) {
    flag.text = body.substr(equals + 1);
    flag.has_text = true;
    return flag;
  }
  const Field* field = FieldOf(flag.name);
  const bool has_next = i + 1 < arguments.size() && !IsFlag(arguments[i + 1]);
  const bool is_bool = field && field->kind == FieldKind::kBool;
  if (field && !field->flag_value.is_null()) return flag;
  const bool alone = is_bool ? !has_next || !IsBoolText(arguments[i + 1])
                             : !has_next || (!field && !NegatedName(flag.name).empty());
  if (alone) return flag;
  flag.text = arguments[++i];
  flag.has_text = true;
  return flag;
}

void Flags::Assign(Flag flag, Value& own) {
  std::string name = flag.name;
  const Field* field = FieldOf(name);
  const std::string_view positive = NegatedName(name);
  const Field* opposite = field || flag.has_text ? nullptr : FieldOf(positive);
  Value value;
  if (opposite && opposite->kind == FieldKind::kBool) {
    field = opposite;
    name = positive;
    value = false;
  } else if (!field) {
    unclaimed_.push_back(std::move(flag));
    return;
  } else if (field->kind == FieldKind::kBool) {
    value = BoolOf(flag.has_text, flag.text);
  } else if (!flag.has_text && field->flag_value.is_null()) {
    const bool says_more = field->kind == FieldKind::kAny && !field->help.empty();
    throw ConfigError(Str(kSubject, ": --", name,
                          " needs a value: ", says_more ? field->help : field->Expected()));
  } else {
    value = flag.has_text ? ParseText(field, flag.text) : field->flag_value;
  }
  if (FindField(own_fields_, name)) {
    // A flag of the command that takes any value may be repeated: its values are collected in a
    // list.
    if (field->kind == FieldKind::kAny && own.Has(field->name)) {
      value = Joined(own[field->name], value);
    }
    own.Set(field->name, std::move(value));
  } else {
    SetOverride(job_, name, value, kSubject, "");
  }
}

std::optional<Value> Flags::Take(const Option& option) {
  const std::string name = FoldedName(option.name);
  const bool is_bool = option.fallback.is_bool();
  std::optional<Value> value;
  for (Flag& flag : unclaimed_) {
    if (is_bool && !flag.has_text && NegatedName(flag.name) == name) {
      value = false;
    } else if (flag.name != name) {
      continue;
    } else if (is_bool && !flag.has_text) {
      value = true;
    } else if (!flag.has_text) {
      throw ConfigError(
          Str(kSubject, ": --", option.name, " needs a value: ", option.field.Expected()));
    } else {
      value = OptionOfText(option.field, option.fallback, flag.text, kSubject);
    }
    flag.taken = true;
  }
  return value;
}

void Flags::CheckAllTaken() const {
  std::vector<std::string> names = FieldNames(own_fields_);
  names.insert(names.end(), option_names_.begin(), option_names_.end());
  for (std::string& path : JobFieldPaths()) names.push_back(std::move(path));
  for (const Flag& flag : unclaimed_) {
    if (flag.taken) continue;
    throw ConfigError(Str("there is no flag --", flag.name, KeyHint(flag.name, names)));
  }
}

}  // namespace strata
