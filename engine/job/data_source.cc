#include "engine/job/data_source.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

std::vector<std::string> SourceNames() {
  std::vector<std::string> names;
  for (const DataSourceType& type : DataSourceTypes()) names.push_back(type.name);
  return names;
}

const DataSourceType& SourceOf(std::string_view name, const std::string& where) {
  if (const DataSourceType* type = FindDataSource(name)) return *type;
  throw ConfigError(
      Str(Place(where), "there is no data source \"", name, "\"", DidYouMean(name, SourceNames())));
}

/// The name in messages: "strata.data.csv", "the step take".
std::string NameOf(const DataSourceType& type) {
  if (type.of != DataSourceType::Of::kNothing) return Str("the step ", type.name);
  return type.name == "dataset" ? "strata.dataset" : Str("strata.data.", type.name);
}

Value Options(const DataSourceType& type, const Value::List& positional, const Value::Map& named,
              const std::string& where) {
  return Canonicalize(
      type.fields,
      {.subject = NameOf(type), .where = where, .positional = positional, .named = named});
}

/// True for the sources of records, which have more than one kind of input.
bool AreRecords(const DataSourceType& type) {
  return std::ranges::find(type.fields, "columns", &Field::name) != type.fields.end() &&
         std::ranges::find(type.fields, "image", &Field::name) != type.fields.end();
}

/// Of records, texts and tokens need a length, and images a size.
bool IsNeeded(const DataSourceType& type, const Value& options, const std::string& name) {
  if (!AreRecords(type)) return true;
  const bool has_image = !options["image"].is_null();
  return name == "size" ? has_image : !has_image && options["columns"].is_null();
}

/// Throws ConfigError unless the options of records say one kind of input.
void CheckRecords(const Value& options, const std::string& subject, const std::string& where) {
  std::vector<std::string> given;
  for (const char* name : {"tokens", "columns", "image"}) {
    if (!options[name].is_null()) given.emplace_back(name);
  }
  if (given.size() > 1) {
    throw ConfigError(Str(Place(where), subject, " takes one of tokens, columns and image, got ",
                          Join(given, " and ")));
  }
  const Value& columns = options["columns"];
  const bool are_names =
      columns.is_null() || (columns.is_list() && !columns.as_list().empty() &&
                            std::ranges::all_of(columns.as_list(), &Value::is_string));
  if (are_names) return;
  throw ConfigError(
      Str(Place(where), subject, ": columns expects a list of names, got ", columns.Describe()));
}

/// Fills in options that follow from the job's input (null if it is not known). Throws ConfigError
/// if an option that the source needs is then still missing.
void Fit(const DataSourceType& type, Value& options, const TensorSpec* input,
         const std::string& where) {
  if (input && type.fit) type.fit(options, *input);
  for (const std::string& name : type.needs) {
    if (!options[name].is_null() || !IsNeeded(type, options, name)) continue;
    const bool may_be_packed = name == "length" && (AreRecords(type) || type.name == "chat");
    throw ConfigError(
        Str(Place(where), NameOf(type), " needs ", name, ", since the job's input does not tell it",
            may_be_packed ? "; to pack texts, put pack before steps such as split" : ""));
  }
}

/// Throws ConfigError unless exactly one of `get` and `batch` is given.
void CheckOwn(const Value& options, const std::string& where) {
  if (options["get"].is_null() != options["batch"].is_null()) return;
  throw ConfigError(Str(Place(where), "strata.dataset takes one of get = function(i) and batch = ",
                        "function(indices), got ", options["get"].is_null() ? "none" : "both"));
}

DataSpec ParseSource(const Value& value, const TensorSpec* input, const std::string& where);

/// Returns the option `of` of a step in canonical form: a source, or a list of sources.
Value ParseOf(const DataSourceType& type, const Value& of, const std::string& where) {
  const auto parse = [&](const Value& source) {
    DataSpec spec = ParseSource(source, nullptr, where);
    Value result;
    result.Set("source", spec.kind).Set("where", spec.where);
    for (auto& [key, option] : spec.options.as_map()) result.Set(key, option);
    return result;
  };
  if (type.of == DataSourceType::Of::kOne) return parse(of);
  Value::List sources;
  for (const Value& source : of.as_list()) sources.push_back(parse(source));
  return sources;
}

/// Gives the sources below the step pack that need a `length`, and do not use it there, the length
/// of its rows.
Value WithLength(Value source, const Value& length) {
  if (!source.is_map()) return source;
  const Value of = source["of"];
  if (of.is_list()) {
    Value::List parts;
    for (const Value& part : of.as_list()) parts.push_back(WithLength(part, length));
    return source.Set("of", std::move(parts));
  }
  if (of.is_map()) return source.Set("of", WithLength(of, length));
  const DataSourceType* type = FindDataSource(source["source"].as_string());
  const bool needs = type && std::ranges::find(type->needs, "length") != type->needs.end();
  if (needs && source["length"].is_null()) source.Set("length", length);
  return source;
}

/// Reads a source or step, without the facts that only opening the data tells.
DataSpec ParseSource(const Value& value, const TensorSpec* input, const std::string& where) {
  if (!value.is_map() || !value["source"].is_string()) {
    throw ConfigError(Str(Place(where), "data expects a source such as strata.data.digits{} or a ",
                          "function(i) -> input, target; got ", value.Describe()));
  }
  DataSpec spec;
  spec.where = value["where"].is_string() ? value["where"].as_string() : where;
  const DataSourceType& type = SourceOf(value["source"].as_string(), spec.where);
  Value options = value;
  for (const char* name : {"source", "where", "facts", "of"}) options.Erase(name);
  spec.kind = type.name;
  spec.options = Options(type, {}, options.as_map(), spec.where);
  if (type.name == "dataset") CheckOwn(spec.options, spec.where);
  if (AreRecords(type)) CheckRecords(spec.options, NameOf(type), spec.where);
  Fit(type, spec.options, input, spec.where);
  if (type.of != DataSourceType::Of::kNothing) {
    const Value& of = value["of"];
    const Value below = type.name == "pack" ? WithLength(of, spec.options["length"]) : of;
    spec.options.Set("of", ParseOf(type, below, spec.where));
  }
  return spec;
}

TensorSpecs SpecsIn(const Value& list) {
  TensorSpecs specs;
  for (const Value& spec : list.as_list()) {
    specs.push_back({spec["shape"].as_ints(), ParseDType(spec["dtype"].as_string())});
  }
  return specs;
}

DataSpec FunctionSpec(const FunctionRef& function) {
  DataSpec spec;
  spec.kind = "function";
  spec.options = Value::MakeMap();
  spec.function = function;
  spec.where = function.where;
  return spec;
}

}  // namespace

Value ToValue(const DataFacts& facts) {
  Value value = Value::MakeMap({{"samples", facts.samples},
                                {"inputs", ToValue(facts.inputs)},
                                {"targets", ToValue(facts.targets)},
                                {"classes", facts.classes}});
  const auto& names = facts.class_names;
  if (!names.empty()) value.Set("class_names", Value::List(names.begin(), names.end()));
  const auto& before = facts.names_before_map;
  if (before != names) value.Set("names_before_map", Value::List(before.begin(), before.end()));
  if (!facts.encoding.empty()) value.Set("encoding", facts.encoding);
  const auto& [in_row, tokens] = facts.documents;
  if (in_row > 0) value.Set("documents", Value::List{in_row, tokens});
  return value;
}

const DataSourceType* FindDataSource(std::string_view name) {
  for (const auto* types : {&DataSourceTypes(), &DataStepTypes()}) {
    for (const DataSourceType& type : *types) {
      if (type.name == name) return &type;
    }
  }
  return nullptr;
}

Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where) {
  const Value options = Options(SourceOf(name, where), positional, named, where);
  if (name == "dataset") CheckOwn(options, where);
  const DataSourceType& type = SourceOf(name, where);
  if (AreRecords(type)) CheckRecords(options, NameOf(type), where);
  Value result;
  result.Set("source", name).Set("where", where);
  for (const auto& [key, value] : options.as_map()) result.Set(key, value);
  return result;
}

Value MakeDataStep(std::string_view name, const Value& of, const Value::List& positional,
                   const Value::Map& named, const std::string& where) {
  Value step = MakeDataSource(name, positional, named, where);
  return step.Set("of", of);
}

DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where,
                       const ExamineData& examine) {
  if (value.is_null()) return {};
  if (value.is_function()) return FunctionSpec(value.as_function());
  DataSpec spec = ParseSource(value, input, where);
  const DataSourceType& type = *FindDataSource(spec.kind);
  if (!type.input) {
    if (!examine) throw ConfigError(Str(Place(spec.where), "nobody can open ", NameOf(type)));
    DataFacts facts = examine(spec);
    spec.options.Set("facts", ToValue(facts));
    spec.notes = std::move(facts.notes);
  }
  const TensorSpecs inputs = FactsOf(spec).inputs;
  if (input && inputs != TensorSpecs{*input}) {
    throw ConfigError(Str(Place(spec.where), NameOf(type), " gives samples of ",
                          ToString(inputs, ", ", ""), ", but the job's input is ",
                          input->ToString()));
  }
  return spec;
}

DataFacts FactsOf(const DataSpec& spec) {
  const DataSourceType& type = *FindDataSource(spec.kind);
  const Value& options = spec.options;
  if (type.input) {
    const Value& samples = options["samples"];
    return {samples.is_int() ? samples.as_int() : 0,
            {type.input(options)},
            {type.target(options)},
            type.classes(options)};
  }
  const Value& facts = options["facts"];
  const auto strings = [&](const char* key) {
    std::vector<std::string> strings;
    const Value* list = facts.Find(key);
    for (const Value& one : list ? list->as_list() : Value::List()) {
      strings.push_back(one.as_string());
    }
    return strings;
  };
  const std::vector<std::string> names = strings("class_names");
  const Value* encoding = facts.Find("encoding");
  const Value* documents = facts.Find("documents");
  DocumentLimits limits;
  if (documents) limits = {documents->as_list()[0].as_int(), documents->as_list()[1].as_int()};
  return {.samples = facts["samples"].as_int(),
          .inputs = SpecsIn(facts["inputs"]),
          .targets = SpecsIn(facts["targets"]),
          .classes = facts["classes"].as_int(),
          .class_names = names,
          .names_before_map = facts.Find("names_before_map") ? strings("names_before_map") : names,
          .encoding = encoding ? encoding->as_string() : "",
          .documents = limits};
}

const Value& FindOption(const Value& source, std::string_view name) {
  static const Value none;
  if (const Value* option = source.Find(name); option && !option->is_null()) return *option;
  const Value& of = source["of"];
  if (of.is_map()) return FindOption(of, name);
  if (of.is_list() && !of.as_list().empty()) return FindOption(of.as_list()[0], name);
  return none;
}

bool AnySource(const DataSpec& spec, const std::function<bool(std::string_view kind)>& is_true) {
  const std::function<bool(std::string_view, const Value&)> any = [&](std::string_view kind,
                                                                      const Value& source) {
    const auto is_below = [&](const Value& below) {
      return any(below["source"].as_string(), below);
    };
    const Value& of = source["of"];
    if (is_true(kind) || (of.is_map() && is_below(of))) return true;
    return of.is_list() && std::ranges::any_of(of.as_list(), is_below);
  };
  return any(spec.kind, spec.options);
}

bool HasEnd(const DataSpec& spec) { return FindDataSource(spec.kind) != nullptr; }

}  // namespace strata
