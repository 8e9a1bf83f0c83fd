#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/flags/flags.h"
#include "engine/job/flags/overrides.h"

namespace strata {
namespace {

constexpr const char* kCommandLine = "the command line";

/// The field of a script's option, derived from the kind of its default.
Field OptionField(const std::string& name, const Value& fallback, const std::string& where) {
  switch (fallback.kind()) {
    case Value::Kind::kBool:
      return Field::Bool(name, "");
    case Value::Kind::kInt:
    case Value::Kind::kDouble:
      return Field::Number(name, "");
    case Value::Kind::kString:
      return Field::String(name, "");
    case Value::Kind::kList:
      return Field::Any(name, "");
    default:
      throw ConfigError(Str(Place(where), "strata.options: the default of \"", name,
                            "\" must be true or false, a number, a string or a list; got ",
                            fallback.Describe()));
  }
}

/// The given value of an option: whole numbers become integers, and a single value for a list
/// becomes a list.
Value OptionValue(const Field& field, const Value& fallback, const Value& given, const Call& call) {
  const Value value = CanonicalizeField(field, given, call);
  if (fallback.is_list() && !value.is_list()) return Value::List{value};
  return value.is_int() ? Value(value.as_int()) : value;
}

/// The name of a flag: "depth" for "--depth=2"; "" for an argument that is not a flag.
std::string FlagName(std::string_view argument) {
  if (argument.size() < 3 || !argument.starts_with("--")) return "";
  return FoldedName(argument.substr(2, argument.find('=') - 2));
}

}  // namespace

bool IsBoolText(const std::string& text) {
  static const Field any = Field::Bool("", "");
  return ParseText(&any, text).is_bool();
}

std::string_view NegatedName(std::string_view name) {
  return name.starts_with("no_") ? name.substr(3) : std::string_view();
}

Value OptionOfText(const Field& field, const Value& fallback, const std::string& text,
                   const std::string& subject) {
  if (fallback.is_list() && text.empty()) return Value::List();
  return OptionValue(field, fallback, ParseText(&field, text), {.subject = subject});
}

Value Settings::TakeOptions(const Value& defaults, const std::string& where) {
  Value options = Value::MakeMap();
  const Call call = CallOf(defaults);
  if (!call.positional.empty()) {
    throw ConfigError(Str(Place(where), "strata.options takes names with defaults, ",
                          "{name=default, ...}; got ", call.positional[0].Describe(),
                          " without a name"));
  }
  for (const auto& [name, fallback] : call.named) {
    if (FieldOf(FoldedName(name))) {
      throw ConfigError(Str(Place(where), "strata.options: \"", name,
                            "\" is a flag of the job or the command already; choose another name"));
    }
    const Option option = {name, fallback, OptionField(name, fallback, where)};
    option_names_.push_back(name);
    options.Set(name, Take(option).value_or(fallback));
  }
  return options;
}

const Field* Settings::FieldOf(std::string_view name) const { return FindJobField(name); }

// ---- Tables

TableSettings::TableSettings(const Value& table, const std::string& subject,
                             const std::string& where)
    : subject_(subject), where_(where) {
  const Call call = CallOf(table);
  if (!call.positional.empty()) {
    throw ConfigError(Str(Place(where), subject, " takes options with values, such as {depth=2}; ",
                          "got ", call.positional[0].Describe(), " without a name"));
  }
  for (const auto& [name, value] : call.named) {
    if (FindJobField(name)) {
      SetOverride(job_, name, value, subject, where);
    } else {
      unclaimed_.emplace_back(FoldedName(name), value);
    }
  }
}

std::optional<Value> TableSettings::Take(const Option& option) {
  const auto set = std::ranges::find(unclaimed_, FoldedName(option.name), &Value::Entry::first);
  if (set == unclaimed_.end()) return std::nullopt;
  const Call call = {.subject = subject_, .where = where_, .noun = "option"};
  return OptionValue(option.field, option.fallback, set->second, call);
}

void TableSettings::CheckAllTaken(const std::string& script) const {
  std::vector<std::string> names = option_names_;
  for (const auto& [name, value] : unclaimed_) {
    const bool taken = std::ranges::find(option_names_, name, FoldedName) != option_names_.end();
    if (taken) continue;
    for (std::string& path : JobFieldPaths()) names.push_back(std::move(path));
    throw ConfigError(Str(Place(where_), subject_, ": ", script, " has no option \"", name,
                          "\", nor the job such a key", DidYouMean(name, names)));
  }
}

// ---- The arguments of `strata run`

ArgumentSettings::ArgumentSettings(std::vector<std::string> arguments)
    : arguments_(std::move(arguments)) {
  for (const std::string& argument : arguments_) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : argument.npos;
    given_.push_back(equals == argument.npos ? argument : argument.substr(equals + 1));
  }
}

std::optional<Value> ArgumentSettings::Take(const Option& option) {
  const std::string name = FoldedName(option.name);
  const bool is_bool = option.fallback.is_bool();
  std::optional<Value> value;
  for (size_t i = 0; i < arguments_.size() && arguments_[i] != "--";) {
    const std::string flag = FlagName(arguments_[i]);
    const size_t equals = arguments_[i].find('=');
    const bool is_alone = equals == std::string::npos;
    const bool is_off = is_bool && is_alone && NegatedName(flag) == name;
    if (flag != name && !is_off) {
      ++i;
      continue;
    }
    const bool has_next = is_alone && !is_off && i + 1 < arguments_.size() &&
                          !arguments_[i + 1].starts_with("--") &&
                          (!is_bool || IsBoolText(arguments_[i + 1]));
    if (is_alone && !has_next && !is_bool) {
      throw ConfigError(
          Str(kCommandLine, ": --", option.name, " needs a value: ", option.field.Expected()));
    }
    const std::string text = has_next    ? arguments_[i + 1]
                             : !is_alone ? arguments_[i].substr(equals + 1)
                                         : (is_off ? "false" : "true");
    value = OptionOfText(option.field, option.fallback, text, kCommandLine);
    const auto first = arguments_.begin() + static_cast<int64_t>(i);
    arguments_.erase(first, first + (has_next ? 2 : 1));
  }
  return value;
}

void ArgumentSettings::CheckAllTaken() const {
  if (option_names_.empty()) return;
  for (const std::string& argument : arguments_) {
    if (argument == "--") return;
    const std::string name = FlagName(argument);
    if (name.empty()) continue;
    throw ConfigError(Str("there is no option --", name, DidYouMean(name, option_names_),
                          "; what the script reads from arg stands behind \"--\""));
  }
}

}  // namespace strata
