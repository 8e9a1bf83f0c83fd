// Declaration of MultiheadAttention.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

/// The number of features of keys ("kdim") or values ("vdim"); embed_dim if the call does not say.
int64_t Width(const LayerSpec& spec, const char* name) {
  const Value& width = spec.args[name];
  return (width.is_null() ? spec.args["embed_dim"] : width).as_int();
}

void Finish(LayerSpec& spec) {
  const int64_t embed = spec.args["embed_dim"].as_int();
  const int64_t heads = spec.args["num_heads"].as_int();
  if (embed % heads != 0) {
    throw ConfigError(Str("embed_dim ", embed, " is not divisible by num_heads ", heads));
  }
}

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  const int64_t embed = spec.args["embed_dim"].as_int();
  const int64_t keys = Width(spec, "kdim");
  const int64_t values = Width(spec, "vdim");
  const bool bias = spec.args["bias"].as_bool();
  std::vector<ParameterSpec> specs;
  if (keys == embed && values == embed) {
    specs.push_back({.name = "in_proj_weight", .shape = {3 * embed, embed}});
  } else {
    specs = {{.name = "q_proj_weight", .shape = {embed, embed}},
             {.name = "k_proj_weight", .shape = {embed, keys}},
             {.name = "v_proj_weight", .shape = {embed, values}}};
  }
  if (bias) specs.push_back({.name = "in_proj_bias", .shape = {3 * embed}});
  if (spec.args["add_bias_kv"].as_bool()) {
    specs.push_back({.name = "bias_k", .shape = {1, 1, embed}});
    specs.push_back({.name = "bias_v", .shape = {1, 1, embed}});
  }
  Append(specs, Prefixed("out_proj", LinearParameters(embed, embed, bias)));
  if (!SplitOf(spec).empty()) ShareHeads(specs);
  return specs;
}

void ExpectSequence(const TensorSpec& input, int64_t width, const char* layout) {
  if (input.shape.size() != 3 || input.shape[2] != width) {
    RefuseShape(Str("(", layout, ", ", width, ")"), input);
  }
  ExpectParameterDType(input);
}

TensorSpecs Infer(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  if (inputs.size() != 1 && inputs.size() != 3) {
    throw ShapeError(Str("expects one tensor, or query, key and value, got ", ToString(inputs)));
  }
  const bool batch_first = spec.args["batch_first"].as_bool();
  const char* layout = batch_first ? "batch, sequence" : "sequence, batch";
  const TensorSpec& query = inputs[0];
  const TensorSpec& key = inputs.size() == 3 ? inputs[1] : query;
  const TensorSpec& value = inputs.size() == 3 ? inputs[2] : query;
  ExpectSequence(query, spec.args["embed_dim"].as_int(), layout);
  ExpectSequence(key, Width(spec, "kdim"), layout);
  ExpectSequence(value, Width(spec, "vdim"), layout);
  const size_t batch = batch_first ? 0 : 1;
  if (query.shape[batch] != key.shape[batch] || key.shape[0] != value.shape[0] ||
      key.shape[1] != value.shape[1]) {
    throw ShapeError(Str("expects query, key and value of one batch, keys as long as values, got ",
                         ToString(inputs)));
  }
  return {query};
}

}  // namespace

std::vector<LayerType> AttentionTypes() {
  return {{
      .name = "MultiheadAttention",
      .fields =
          {
              Field::Int("embed_dim", "features of the input and the output").AtLeast(1),
              Field::Int("num_heads", "heads, each of embed_dim / num_heads features").AtLeast(1),
              Field::Number("dropout", "share of the attention weights set to 0 in training")
                  .AtLeast(0)
                  .AtMost(1)
                  .Default(0.0),
              Field::Bool("bias", "the projections have offsets").Default(true),
              Field::Bool("add_bias_kv", "adds a learned key and value to the sequence")
                  .Default(false),
              Field::Bool("add_zero_attn", "adds a key and a value of zeros").Default(false),
              Field::Int("kdim", "features of the keys; none = embed_dim").AtLeast(1).Optional(),
              Field::Int("vdim", "features of the values; none = embed_dim").AtLeast(1).Optional(),
              Field::Bool("batch_first", "(batch, sequence, ...) instead of (sequence, batch, ...)")
                  .Default(false),
              Device(),
              ParameterDType(),
              Causal(),
          },
      .help = "attention; of one input x it is attention(x, x, x). Gives no weights",
      .shapes = "(L, N, embed_dim) -> (L, N, embed_dim); with batch_first N comes first",
      .splits = {"heads"},
      .finish = Finish,
      .parameters = Parameters,
      .infer = Infer,
  }};
}

}  // namespace strata::layers
