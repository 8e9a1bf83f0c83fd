#include "engine/job/job_keys.h"

#include <algorithm>

#include "engine/base/text.h"

namespace strata {
namespace {

/// Our name for a precision that other engines, and dtypes, name differently. It is needed since
/// DidYouMean() alone would suggest float32 for float16.
std::string OurName(const std::string& type) {
  if (type == "float16" || type == "half") return "fp16";
  if (type == "bfloat16") return "bf16";
  return type == "fp32" ? "float32" : type;
}

}  // namespace

struct JobKeys::Typed {
  std::string type;  // "" = omitted
  Call call;         // the options
};

JobKeys::JobKeys(const RawJob& raw, const Value& overrides)
    : raw_(raw), overrides_(overrides.is_null() ? Value::MakeMap() : overrides) {
  Call call = CallFor("the job", raw.keys);
  CanonicalizeGiven(JobFields(), call);
  script_ = Value::MakeMap(call.named);
  RemoveNone();
  call.named = Merged(script_, overrides_).as_map();
  flat_ = Canonicalize(JobFields(), call);
}

void JobKeys::RemoveNone() {
  for (const Field& field : JobFields()) {
    if (field.kind != FieldKind::kTable) continue;
    if (script_[field.name] == Value("none")) script_.Erase(field.name);
    Value over = overrides_[field.name];
    if (!over.is_map() || over["1"] != Value("none")) continue;
    script_.Erase(field.name);
    over.Erase("1");
    overrides_.Set(field.name, over.as_map().empty() ? Value() : over);
  }
}

Call JobKeys::CallFor(std::string subject, const Value& value) const {
  Call call = CallOf(value);
  call.subject = std::move(subject);
  call.where = raw_.where;
  call.noun = "key";
  return call;
}

void JobKeys::Refuse(const std::string& message) const {
  throw ConfigError(Str(Place(raw_.where), "the job: ", message));
}

Value JobKeys::Table(const char* key, const FieldTable& fields, Replaces replaces) const {
  if (!given(key)) return Value();
  const std::string subject = Str("the job's ", key);
  const Value base = CanonicalizeGiven(fields, CallFor(subject, script(key)));
  const Value over = CanonicalizeGiven(fields, CallFor(subject, override_of(key)));
  const Value table = replaces && replaces(base, over) ? over : Merged(base, over);
  return Canonicalize(fields, CallFor(subject, table));
}

JobKeys::Typed JobKeys::ReadTyped(const char* key, const Value& value,
                                  const char* type_name) const {
  Typed typed;
  if (value.is_function()) return typed;
  typed.call = CallFor("", value);
  auto& positional = typed.call.positional;
  if (!positional.empty() && positional[0].is_string()) {
    typed.type = positional[0].as_string();
    positional.erase(positional.begin());
  } else if (!positional.empty()) {
    Refuse(Str(key, " expects a type first, such as {\"TYPE\", option=value}; got ",
               positional[0].Describe()));
  }
  auto& named = typed.call.named;
  const auto type = std::ranges::find(named, type_name, &Value::Entry::first);
  if (typed.type.empty() && type != named.end() && type->second.is_string()) {
    typed.type = type->second.as_string();
    named.erase(type);
  }
  return typed;
}

const OptionTable& JobKeys::TypeIn(const char* key, const std::vector<OptionTable>& tables,
                                   const std::string& type) const {
  std::vector<std::string> names;
  for (const OptionTable& table : tables) {
    if (table.name == type) return table;
    names.push_back(table.name);
  }
  if (type.empty()) Refuse(Str(key, " needs a type first: one of ", Join(names, ", ")));
  Refuse(
      Str("there is no ", key, " \"", type, "\"", DidYouMean(OurName(type), names, names.size())));
}

std::pair<std::string, Value> JobKeys::TypedTable(const char* key,
                                                  const std::vector<OptionTable>& tables,
                                                  const std::string& fallback,
                                                  const char* type_name) const {
  Typed base = ReadTyped(key, script(key), type_name);
  Typed over = ReadTyped(key, override_of(key), type_name);
  const bool replaced = !over.type.empty() && over.type != base.type;
  if (replaced) base = {over.type, CallFor("", {})};
  if (script(key).is_null() && base.type.empty()) base.type = fallback;
  const OptionTable& table = TypeIn(key, tables, base.type);
  for (Call* call : {&base.call, &over.call}) {
    call->subject = Str("the ", key, " ", table.name);
    call->where = raw_.where;
    call->noun = "option";
  }
  const Value options = Merged(CanonicalizeGiven(table.fields, base.call),
                               CanonicalizeGiven(table.fields, over.call));
  Call all = base.call;
  all.positional.clear();
  all.named = options.as_map();
  return {table.name, Canonicalize(table.fields, all)};
}

Value JobKeys::Ask(const char* key, const FunctionRef& function,
                   const Value::List& arguments) const {
  if (!raw_.call) Refuse(Str(key, " is a function, and no script runs that could be asked"));
  return raw_.call(function, arguments);
}

std::pair<std::string, Value> JobKeys::TypedValue(const char* key,
                                                  const std::vector<OptionTable>& tables,
                                                  const Value& value) const {
  Typed typed = ReadTyped(key, value, "");
  const OptionTable& table = TypeIn(key, tables, typed.type);
  typed.call.subject = Str("the ", key, " ", table.name);
  typed.call.noun = "option";
  return {table.name, Canonicalize(table.fields, typed.call)};
}

int64_t CountOf(const Value& value) { return value.is_null() ? 0 : value.as_int(); }

int64_t EveryOf(const Value& value) { return value.is_string() ? kEveryEpoch : CountOf(value); }

std::string TextOf(const Value& value) { return value.is_null() ? "" : value.as_string(); }

LayerSelector ReadSelector(const Value& value) {
  if (value.is_null()) return {};
  if (value.is_list()) return {value.as_list()};
  return {{value}};
}

}  // namespace strata
