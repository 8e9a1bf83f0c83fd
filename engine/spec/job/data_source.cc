#include "engine/spec/job/data_source.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

Field Split() {
  return Field::Choice("split", {"train", "test"}, "which part of the samples").Default("train");
}

Field Shuffle() {
  return Field::Bool("shuffle", "another order in each epoch; none = for split train").Optional();
}

Field Samples() { return Field::Int("samples", "how many").AtLeast(1).Default(1024); }

Field Length() {
  return Field::Int("length", "tokens of a sample; none = by the job's input")
      .AtLeast(1)
      .Optional();
}

TensorSpec Scalar(const Value&) { return {{}, DType::kInt64}; }

TensorSpec Tokens(const Value& options) { return {{options["length"].as_int()}, DType::kInt64}; }

void FitLength(Value& options, const TensorSpec& input) {
  if (options["length"].is_null() && input.shape.size() == 1) {
    options.Set("length", input.shape[0]);
  }
}

DataSourceType Digits() {
  return {.name = "digits",
          .fields = {Split(), Shuffle(),
                     Field::String("path", "the file; none = where the set-up put it").Optional()},
          .help = "UCI digits: images of 8x8, 10 classes",
          .fit = {},
          .input =
              [](const Value&) {
                return TensorSpec{{1, 8, 8}, DType::kFloat32};
              },
          .target = Scalar,
          .classes = [](const Value&) { return int64_t{10}; }};
}

void FitImageSize(Value& options, const TensorSpec& input) {
  const bool square = input.shape.size() == 3 && input.shape[1] == input.shape[2];
  if (options["size"].is_null() && square) options.Set("size", input.shape[1]);
}

DataSourceType Cifar10() {
  return {
      .name = "cifar10",
      .fields = {Field::String("path", "folder of the binary files"), Split(), Shuffle(),
                 Field::Int("size", "images are resized to it; none = by the job's input, or 32")
                     .AtLeast(1)
                     .Optional()},
      .help = "CIFAR-10 in its binary form: colour images, 10 classes",
      .fit = FitImageSize,
      .input =
          [](const Value& options) {
            const int64_t size = options["size"].is_null() ? 32 : options["size"].as_int();
            return TensorSpec{{3, size, size}, DType::kFloat32};
          },
      .target = Scalar,
      .classes = [](const Value&) { return int64_t{10}; }};
}

DataSourceType Text() {
  return {.name = "text",
          .fields = {Field::String("path",
                                   "a file, or a folder of files; none = the licence texts "
                                   "of this machine")
                         .Optional(),
                     Split(), Shuffle(), Length()},
          .help = "bytes of text; the target is the next byte",
          .fit = FitLength,
          .input = Tokens,
          .target = Tokens,
          .classes = [](const Value&) { return int64_t{256}; }};
}

void FitImageShape(Value& options, const TensorSpec& input) {
  if (options["shape"].is_null()) options.Set("shape", Value::IntList(input.shape));
}

DataSourceType Images() {
  return {
      .name = "images",
      .fields = {Field::Shape("shape", "of an image; none = the job's input").AtLeast(1).Optional(),
                 Field::Int("classes", "how many").AtLeast(1).Default(10), Samples(), Split(),
                 Shuffle()},
      .help = "synthetic images with classes, always the same ones",
      .fit = FitImageShape,
      .input =
          [](const Value& options) {
            return TensorSpec{options["shape"].as_ints(), DType::kFloat32};
          },
      .target = Scalar,
      .classes = [](const Value& options) { return options["classes"].as_int(); }};
}

DataSourceType SyntheticTokens() {
  return {.name = "tokens",
          .fields = {Field::Int("vocabulary", "how many tokens there are").AtLeast(1), Length(),
                     Samples(), Split(), Shuffle()},
          .help = "synthetic sequences, always the same ones; the target is the next token",
          .fit = FitLength,
          .input = Tokens,
          .target = Tokens,
          .classes = [](const Value& options) { return options["vocabulary"].as_int(); }};
}

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

Value Options(const DataSourceType& type, const Value::List& positional, const Value::Map& named,
              const std::string& where) {
  return Canonicalize(type.fields, {.subject = Str("strata.data.", type.name),
                                    .where = where,
                                    .positional = positional,
                                    .named = named});
}

/// Completes the options from the job's input, and checks that the source's samples agree with it.
void Fit(const DataSourceType& type, DataSpec& spec, const TensorSpec* input) {
  const std::string place = Str(Place(spec.where), "strata.data.", type.name);
  if (input && type.fit) type.fit(spec.options, *input);
  for (const char* name : {"length", "shape"}) {
    const Value* option = spec.options.Find(name);
    if (!option || !option->is_null()) continue;
    throw ConfigError(Str(place, " needs ", name, ", since the job's input does not tell it"));
  }
  if (input && *input != type.input(spec.options)) {
    throw ConfigError(Str(place, " gives samples of ", type.input(spec.options).ToString(),
                          ", but the job's input is ", input->ToString()));
  }
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

const std::vector<DataSourceType>& DataSourceTypes() {
  static const std::vector<DataSourceType> types = {Digits(), Cifar10(), Text(), Images(),
                                                    SyntheticTokens()};
  return types;
}

const DataSourceType* FindDataSource(std::string_view name) {
  const auto& types = DataSourceTypes();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const DataSourceType& type) { return type.name == name; });
  return found == types.end() ? nullptr : &*found;
}

Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where) {
  const Value options = Options(SourceOf(name, where), positional, named, where);
  Value result;
  result.Set("source", name).Set("where", where);
  for (const auto& [key, value] : options.as_map()) result.Set(key, value);
  return result;
}

DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where) {
  if (value.is_null()) return {};
  if (value.is_function()) return FunctionSpec(value.as_function());
  if (!value.is_map() || !value["source"].is_string()) {
    throw ConfigError(Str(Place(where), "data expects a source such as strata.data.digits{} or a ",
                          "function(i) -> input, target; got ", value.Describe()));
  }
  DataSpec spec;
  spec.where = value["where"].is_string() ? value["where"].as_string() : where;
  const DataSourceType& type = SourceOf(value["source"].as_string(), spec.where);
  Value options = value;
  options.Erase("source");
  options.Erase("where");
  spec.kind = type.name;
  spec.options = Options(type, {}, options.as_map(), spec.where);
  Fit(type, spec, input);
  return spec;
}

bool HasEnd(const DataSpec& spec) { return FindDataSource(spec.kind) != nullptr; }

}  // namespace strata
