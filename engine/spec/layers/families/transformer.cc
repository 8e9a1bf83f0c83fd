// Declarations of TransformerEncoderLayer and TransformerDecoderLayer.
#include <utility>

#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

void Finish(LayerSpec& spec) {
  const int64_t width = spec.args["d_model"].as_int();
  const int64_t heads = spec.args["nhead"].as_int();
  if (width % heads != 0) {
    throw ConfigError(Str("d_model ", width, " is not divisible by nhead ", heads));
  }
}

/// The parameters of a transformer layer. `attentions` are the names of its attention blocks. There
/// is a norm for each of them and one for the feed-forward block.
std::vector<ParameterSpec> BlockParameters(const LayerSpec& spec,
                                           std::vector<std::string> attentions) {
  const int64_t width = spec.args["d_model"].as_int();
  const int64_t hidden = spec.args["dim_feedforward"].as_int();
  const bool bias = spec.args["bias"].as_bool();
  const bool is_split = !SplitOf(spec).empty();
  std::vector<ParameterSpec> attention_specs = AttentionParameters(width, bias);
  std::vector<ParameterSpec> linear1 = LinearParameters(width, hidden, bias);
  std::vector<ParameterSpec> linear2 = LinearParameters(hidden, width, bias);
  if (is_split) {
    ShareHeads(attention_specs);
    ShareAll(linear1, {.dim = 0});
    linear2[0].share = {.dim = 1};
  }
  std::vector<ParameterSpec> specs;
  for (const std::string& attention : attentions) {
    Append(specs, Prefixed(attention, attention_specs));
  }
  Append(specs, Prefixed("linear1", std::move(linear1)));
  Append(specs, Prefixed("linear2", std::move(linear2)));
  for (size_t i = 1; i <= attentions.size() + 1; ++i) {
    Append(specs, Prefixed(Str("norm", i), AffineParameters({width}, bias)));
  }
  return specs;
}

std::vector<ParameterSpec> EncoderParameters(const LayerSpec& spec) {
  return BlockParameters(spec, {"self_attn"});
}

std::vector<ParameterSpec> DecoderParameters(const LayerSpec& spec) {
  return BlockParameters(spec, {"self_attn", "multihead_attn"});
}

TensorSpec InferSequence(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t width = spec.args["d_model"].as_int();
  if (input.shape.size() != 3 || input.shape[2] != width) {
    const bool batch_first = spec.args["batch_first"].as_bool();
    RefuseShape(Str(batch_first ? "(batch, sequence, " : "(sequence, batch, ", width, ")"), input);
  }
  ExpectParameterDType(input);
  return input;
}

/// The inputs are one tensor, or a target and a memory with the same batch.
TensorSpecs InferDecoder(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  if (inputs.size() != 1 && inputs.size() != 2) {
    throw ShapeError(Str("expects one tensor, or target and memory, got ", ToString(inputs)));
  }
  for (const TensorSpec& input : inputs) InferSequence(spec, input);
  const size_t batch = spec.args["batch_first"].as_bool() ? 0 : 1;
  if (inputs[0].shape[batch] != inputs.back().shape[batch]) {
    throw ShapeError(Str("expects target and memory of one batch, got ", ToString(inputs)));
  }
  return {inputs[0]};
}

FieldTable Fields() {
  return {
      Field::Int("d_model", "features of the input and the output").AtLeast(1),
      Field::Int("nhead", "attention heads, each of d_model / nhead features").AtLeast(1),
      Field::Int("dim_feedforward", "features between the two linear layers")
          .AtLeast(1)
          .Default(2048),
      Field::Number("dropout", "share of elements set to 0 in training")
          .AtLeast(0)
          .AtMost(1)
          .Default(0.1),
      Field::Choice("activation", {"relu", "gelu"}, "between the two linear layers")
          .Default("relu"),
      Field::Number("layer_norm_eps", "added to the variance by the norms")
          .AtLeast(0)
          .Default(1e-5),
      Field::Bool("batch_first", "(batch, sequence, ...) instead of (sequence, batch, ...)")
          .Default(false),
      Field::Bool("norm_first", "norms come before the blocks instead of after").Default(false),
      Field::Bool("bias", "linear layers, attention and norms have offsets").Default(true),
      Device(),
      ParameterDType(),
      Causal(),
  };
}

}  // namespace

std::vector<LayerType> TransformerTypes() {
  return {
      {.name = "TransformerEncoderLayer",
       .fields = Fields(),
       .help = "self attention and a feed-forward block",
       .shapes = "(L, N, d_model) -> (L, N, d_model); with batch_first N comes first",
       .splits = {"heads", "sequence"},
       .default_split = "heads",
       .finish = Finish,
       .parameters = EncoderParameters,
       .infer = Unary(InferSequence)},
      {.name = "TransformerDecoderLayer",
       .fields = Fields(),
       .help = "self attention, attention to the memory (of one input: that input), feed-forward",
       .shapes = "(L, N, d_model) and memory (M, N, d_model) -> (L, N, d_model); with batch_first "
                 "N comes first",
       .splits = {"heads", "sequence"},
       .default_split = "heads",
       .finish = Finish,
       .parameters = DecoderParameters,
       .infer = InferDecoder},
  };
}

}  // namespace strata::layers
