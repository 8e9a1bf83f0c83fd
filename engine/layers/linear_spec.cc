// Declaration of Linear and of its Megatron-LM names.
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// Refuses an argument that belongs to another split than the layer's.
void Finish(LayerSpec& spec) {
  const std::pair<const char*, const char*> owners[] = {{"gather_output", "column"},
                                                        {"input_is_parallel", "row"}};
  for (const auto& [name, split] : owners) {
    if (spec.args[name].is_null() || SplitOf(spec) == split) continue;
    throw ConfigError(Str(name, " goes with split = \"", split, "\""));
  }
}

/// With split "column" each rank has some of the outputs. With "row" it has some of the inputs, and
/// the whole bias.
std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs =
      LinearParameters(spec.Int("in_features"), spec.Int("out_features"), spec.Bool("bias"));
  const std::string split = SplitOf(spec);
  if (split == "row") specs[0].share = {.dim = 1};
  if (split == "column") ShareAll(specs, {.dim = 0});
  return specs;
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t in = spec.Int("in_features");
  if (input.shape.empty() || input.shape.back() != in) RefuseShape(Str("last dim ", in), input);
  ExpectParameterDType(input);
  TensorSpec output = input;
  output.shape.back() = spec.Int("out_features");
  return output;
}

std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs&) {
  const double in = spec.Number("in_features"), out = spec.Number("out_features");
  const std::string split = SplitOn(tape, spec);
  const int model = tape.model();
  Traced x = inputs[0];
  if (split.empty()) return {ApplyLinear(tape, spec, "weight", x, in, out)};
  if (split == "column") {
    tape.Cross(0, tape.Reduced(x.bytes()));
    const Traced part = ApplyLinear(tape, spec, "weight", x, in, out / model, model);
    if (spec.output_shard) return {part};
    const Traced whole = tape.Fresh(part.spec);
    tape.Cross(tape.Gathered(whole.bytes()), 0);
    return {whole};
  }
  if (x.parts == 1) {
    tape.Cross(0, tape.Gathered(x.bytes()));
    x = tape.Fresh(x.spec, model);
  }
  const Traced y = ApplyLinear(tape, spec, "weight", x, in / model, out);
  tape.Cross(tape.Reduced(y.bytes()), 0);
  return {y};
}

FieldTable Fields(std::vector<Field> more) {
  FieldTable fields = {Field::Int("in_features", "size of the last dim of the input").AtLeast(1),
                       Field::Int("out_features", "size of the last dim of the output").AtLeast(1),
                       Field::Bool("bias", "adds a learned vector").Default(true), Device(),
                       OwnDType()};
  for (Field& field : more) fields.push_back(field.NamedOnly().Optional());
  return fields;
}

}  // namespace

std::vector<LayerType> LinearTypes() {
  const Field gather =
      Field::Bool("gather_output",
                  "split by column: gives the whole output (true), or parts to a row split behind "
                  "it (false); none = as that one takes them");
  const Field is_parallel =
      Field::Bool("input_is_parallel",
                  "split by row: takes the parts of a column split before it (true), or the whole "
                  "input (false); none = as that one gives them");
  const LayerType linear = {.name = "Linear",
                            .fields = Fields({gather, is_parallel}),
                            .help = "x W^T + b over the last dim",
                            .shapes = "(..., in_features) -> (..., out_features)",
                            .multiplies_linear = true,
                            .splits = {"column", "row"},
                            .finish = Finish,
                            .parameters = Parameters,
                            .infer = Unary(Infer),
                            .cost = Cost,
                            .is_token_wise = Always};
  return {linear,
          ParallelType(linear, "ColumnParallelLinear", "column",
                       "a Linear of which each rank of the model axis has some outputs",
                       Fields({gather})),
          ParallelType(linear, "RowParallelLinear", "row",
                       "a Linear of which each rank of the model axis has some inputs",
                       Fields({is_parallel}))};
}

}  // namespace strata::layers
