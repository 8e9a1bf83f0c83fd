#include "engine/layers/layer_types.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/layers/own_type.h"
#include "engine/layers/parts.h"
#include "engine/layers/rules.h"

namespace strata {
namespace {

Field Split(const LayerType& type) {
  if (type.splits.empty()) {
    return Field::Refused("split",
                          "the model axis shares Linear, Embedding, LayerNorm, SwiGLU, attention "
                          "and Transformer layers")
        .NamedOnly();
  }
  Field field = Field::Choice("split", type.splits, "how the ranks of the model axis share it");
  field.NamedOnly();
  if (type.stands_for.empty()) field.Optional();
  if (!type.default_split.empty()) field.Default(type.default_split);
  return field;
}

/// The fields that every layer has in addition to PyTorch's arguments.
FieldTable CommonFields(const LayerType& type) {
  FieldTable fields = {
      Field::String("name", "the layer's path; its index when left out").NamedOnly().Default(""),
      Split(type)};
  const auto has = [&](const char* name) {
    return std::ranges::find(type.fields, name, &Field::name) != type.fields.end();
  };
  if (!type.holds_layers && !has("dtype")) fields.push_back(layers::OwnDType().NamedOnly());
  if (!type.parameters || has("init")) return fields;
  fields.push_back(
      Field::Function("init", "function(layer) that sets other initial values, with nn.init")
          .NamedOnly()
          .Optional());
  return fields;
}

std::vector<LayerType> MakeTable() {
  std::vector<LayerType> table;
  for (const auto family :
       {layers::LinearTypes, layers::ConvolutionTypes, layers::EmbeddingTypes,
        layers::NormalizationTypes, layers::ActivationTypes, layers::DropoutTypes,
        layers::PoolingTypes, layers::ShapingTypes, layers::ContainerTypes, layers::AttentionTypes,
        layers::TransformerTypes, layers::LlamaTypes, layers::PairTypes, layers::RecurrentTypes,
        layers::SpatialTypes, layers::ConnectionTypes, layers::LossTypes}) {
    for (LayerType& type : family()) table.push_back(std::move(type));
  }
  for (LayerType& type : table) {
    if (type.is_loss || type.library != "nn") continue;
    for (Field& field : CommonFields(type)) type.fields.push_back(std::move(field));
  }
  return table;
}

const LayerType* FindIn(const std::vector<LayerType>& types, std::string_view name) {
  const auto found = std::ranges::find(types, name, &LayerType::name);
  return found == types.end() ? nullptr : &*found;
}

const LayerType& TypeOf(const LayerSpec& spec) {
  const LayerType* type = FindLayerType(spec.type);
  STRATA_CHECK(type != nullptr) << spec.type;
  return *type;
}

void CheckChildren(const LayerType& type, const LayerSpec& spec) {
  if (!type.holds_layers) {
    if (spec.children.empty()) return;
    throw ConfigError(Str("takes values, not layers; got ", spec.children[0].ToString()));
  }
  if (spec.children.empty()) throw ConfigError("needs at least one layer");
  for (const LayerSpec& child : spec.children) {
    const LayerType* child_type = FindLayerType(child.type);
    if (child_type && child_type->is_loss) {
      throw ConfigError(Str(child.type, " is a loss, not a layer"));
    }
  }
}

/// The largest number of elements of a tensor. With this limit, sums over a model's layers fit into
/// an int64.
constexpr int64_t kMostElements = int64_t{1} << 48;

void CheckParameters(const LayerSpec& spec) {
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (parameter.elements() <= kMostElements) continue;
    throw ConfigError(Str(parameter.name, " would be ", FormatShape(parameter.shape),
                          ", more than any machine holds"));
  }
}

void CheckOwnType(const LayerSpec& spec) {
  const std::optional<DType> own = OwnType(spec);
  if (!own || IsFloating(*own)) return;
  throw ConfigError(Str("dtype must be a floating-point type, such as \"float64\", got \"",
                        DTypeName(*own), "\""));
}

/// The output shapes of a layer with a type of its own (own_type.h). The rule of the layer's type
/// knows only float32, so floating inputs are passed to it as float32, and its float32 outputs get
/// the type of the first floating input.
TensorSpecs InferInOwnType(const LayerSpec& spec, TensorSpecs inputs, Script* script) {
  DType given = DType::kFloat32;
  for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
    if (IsFloating(input->dtype)) given = std::exchange(input->dtype, DType::kFloat32);
  }
  return WithType(TypeOf(spec).infer(spec, inputs, script), DType::kFloat32, given);
}

void CheckOutputs(const TensorSpecs& outputs) {
  for (const TensorSpec& output : outputs) {
    const bool fits = output.elements() <= kMostElements &&
                      std::all_of(output.shape.begin(), output.shape.end(),
                                  [](int64_t size) { return size <= kLargestSize; });
    if (!fits) {
      throw ShapeError(Str("would give ", output.ToString(), ", more than any machine holds"));
    }
  }
}

/// Appends A and B of each weight of `low_rank` that is among the specs. A part of a layer
/// (parts.h) has only some of the layer's weights.
void AddLowRank(const LowRankSpec& low_rank, std::vector<ParameterSpec>& specs) {
  std::vector<ParameterSpec> added;
  for (const ParameterSpec& weight : specs) {
    if (!low_rank.Has(weight.name)) continue;
    added.push_back({LowRankName(weight.name, 'A'), {low_rank.rank, weight.shape.at(1)}});
    added.push_back({LowRankName(weight.name, 'B'), {weight.shape.at(0), low_rank.rank}});
  }
  layers::Append(specs, std::move(added));
}

/// Turns a layer of a type with `stands_for` into one of the type `other`. Arguments that only
/// `other` has get their defaults.
void StandFor(const LayerType& other, LayerSpec& spec) {
  const Value given = std::exchange(spec.args, Value::MakeMap());
  spec.type = other.name;
  for (const Field& field : other.fields) {
    if (!field.refused.empty()) continue;
    const Value* value = given.Find(field.name);
    spec.args.Set(field.name, value ? *value : field.fallback);
  }
}

/// Moves the arguments `name`, and `init` if it is a function, to the spec's members. Removes
/// `dtype` if it is not given, so that saves of such layers do not mention it.
void TakeCommon(LayerSpec& spec) {
  if (!OwnType(spec)) spec.args.Erase("dtype");
  if (const Value* name = spec.args.Find("name")) spec.name = name->as_string();
  spec.args.Erase("name");
  const Value* init = spec.args.Find("init");
  if (!init || init->is_number()) return;  // a number is PyTorch's own argument
  if (init->is_function()) spec.init = init->as_function();
  spec.args.Erase("init");
}

}  // namespace

const std::vector<LayerType>& LayerTypes() {
  static const std::vector<LayerType> table = MakeTable();
  return table;
}

const LayerType* FindLayerType(std::string_view name) {
  if (name.find('.') != name.npos) return FindIn(PartTypes(), TableName(name));
  return FindIn(LayerTypes(), name);
}

Keeps KeepsOf(const LayerSpec& spec) {
  const Keeps keeps = TypeOf(spec).keeps;
  if (keeps != Keeps::kEither) return keeps;
  return spec.Bool("inplace") ? Keeps::kOutput : Keeps::kInput;
}

std::vector<std::string> LayerTypeNames() {
  std::vector<std::string> names;
  for (const LayerType& type : LayerTypes()) {
    if (type.library == "nn") names.push_back(type.name);
  }
  return names;
}

std::string LayerHelp(const LayerType& type) {
  std::vector<std::string> names;
  for (const Field& field : type.fields) {
    if (field.required) names.push_back(field.name);
  }
  const std::string call = type.holds_layers ? "layer, ..." : Join(names, ", ");
  return Str(type.library, ".", type.name, "{", call, "}: ", type.help, "\n",
             "shapes: ", type.shapes, "\n", FieldHelp(type.fields));
}

LayerSpec MakeLayer(std::string_view type_name, const Value::List& positional,
                    const Value::Map& named, std::vector<LayerSpec> children,
                    const std::string& where) {
  const LayerType* type = FindLayerType(type_name);
  if (!type) {
    throw ConfigError(Str(Place(where), "there is no layer \"", type_name, "\"",
                          DidYouMean(type_name, LayerTypeNames())));
  }
  LayerSpec spec;
  spec.type = type->name;
  spec.where = where;
  spec.children = std::move(children);
  spec.args = Canonicalize(
      type->fields,
      {.subject = type->name, .where = where, .positional = positional, .named = named});
  if (!type->stands_for.empty()) {
    type = FindLayerType(type->stands_for);
    StandFor(*type, spec);
  }
  TakeCommon(spec);
  try {
    CheckOwnType(spec);
    CheckChildren(*type, spec);
    if (type->finish) type->finish(spec);
    CheckParameters(spec);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(Place(where), spec.ToString(), ": ", error.what()));
  }
  return spec;
}

std::vector<ParameterSpec> ParametersOf(const LayerSpec& spec) {
  if (spec.scripted) return spec.script_parameters;
  const LayerType& type = TypeOf(spec);
  if (!type.parameters) return {};
  std::vector<ParameterSpec> specs = type.parameters(spec);
  AddLowRank(spec.low_rank, specs);
  for (ParameterSpec& weight : specs) {
    if (spec.packed.Has(weight.name)) weight.packing = spec.packed.packing;
  }
  if (const std::optional<DType> own = OwnType(spec)) {
    for (ParameterSpec& parameter : specs) {
      if (parameter.dtype == DType::kFloat32) parameter.dtype = *own;
    }
  }
  return specs;
}

std::optional<DType> OwnType(const LayerSpec& spec) {
  const Value* own = spec.scripted ? nullptr : spec.args.Find("dtype");
  return own && own->is_string() ? std::optional(ParseDType(own->as_string())) : std::nullopt;
}

std::string SplitOf(const LayerSpec& spec) {
  const Value* split = spec.scripted ? nullptr : spec.args.Find("split");
  return split && split->is_string() ? split->as_string() : "";
}

bool MayDraw(const LayerSpec& spec) {
  if (spec.has_scripted_forward()) return true;
  const LayerType& type = TypeOf(spec);
  const Value* dropout = spec.args.Find("dropout");
  const bool own = type.draws ? type.draws(spec) : dropout && dropout->as_double() > 0;
  return own || spec.low_rank.dropout > 0 || std::ranges::any_of(OwnChildren(spec), MayDraw);
}

std::string_view UnorderedOnGpu(const LayerSpec& spec) {
  const LayerType* const type = spec.scripted ? nullptr : &TypeOf(spec);
  if (type && type->unordered_on_gpu && type->unordered_on_gpu(spec)) return type->name;
  for (const LayerSpec& child : OwnChildren(spec)) {
    if (const std::string_view inside = UnorderedOnGpu(child); !inside.empty()) return inside;
  }
  return "";
}

bool HasMaxNorm(const LayerSpec& spec) {
  const Value* own = spec.scripted ? nullptr : spec.args.Find("max_norm");
  return (own && !own->is_null()) || std::ranges::any_of(spec.children, HasMaxNorm);
}

bool IsTokenWise(const LayerSpec& spec) {
  if (spec.has_scripted_forward()) return false;
  const LayerType& type = TypeOf(spec);
  return type.is_token_wise ? type.is_token_wise(spec) : type.elementwise;
}

int64_t KeptTokenBytes(const LayerSpec& spec, int64_t ranks, DType type) {
  const LayerType* const known = spec.scripted ? nullptr : &TypeOf(spec);
  int64_t bytes = known && known->kept_of_token ? known->kept_of_token(spec) : 0;
  if (!SplitOf(spec).empty()) bytes /= ranks;
  const DType own = OwnType(spec).value_or(type);  // it holds for the children too
  bytes *= DTypeSize(own);
  const int64_t times = known && known->repeats ? known->repeats(spec) : 1;
  for (const LayerSpec& child : OwnChildren(spec)) {
    bytes += times * KeptTokenBytes(child, ranks, own);
  }
  return bytes;
}

namespace {

/// The number of elements of those parameters for which `counts` is true.
template <class Counts>
int64_t CountElements(const LayerSpec& spec, const Counts& counts) {
  int64_t count = 0;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (!parameter.buffer && counts(parameter)) count += parameter.elements();
  }
  return count;
}

}  // namespace

int64_t CountParameters(const LayerSpec& spec) {
  return CountElements(spec, [](const ParameterSpec&) { return true; });
}

int64_t CountFrozen(const LayerSpec& spec) {
  return CountElements(
      spec, [&](const ParameterSpec& parameter) { return spec.IsFrozen(parameter.name); });
}

std::vector<std::string> ChildPaths(const LayerSpec& spec, int child) {
  const LayerType* const type = spec.scripted ? nullptr : &TypeOf(spec);
  if (!type || !type->repeats) {
    return {LayerPath(spec.children[static_cast<size_t>(child)], child)};
  }
  if (child > 0) return {"norm"};
  std::vector<std::string> paths;
  for (int64_t i = 0; i < type->repeats(spec); ++i) paths.push_back(Str("layers.", i));
  return paths;
}

std::string LayerPath(const LayerSpec& spec, int index) {
  return spec.name.empty() ? std::to_string(index) : spec.name;
}

TensorSpecs InferLayer(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  const bool asks_script = spec.has_scripted_forward();
  STRATA_CHECK(!asks_script || script != nullptr) << spec.type << " at " << spec.where;
  TensorSpecs outputs = asks_script     ? script->InferShapes(spec, inputs)
                        : OwnType(spec) ? InferInOwnType(spec, inputs, script)
                                        : TypeOf(spec).infer(spec, inputs, script);
  CheckOutputs(outputs);
  return outputs;
}

}  // namespace strata
