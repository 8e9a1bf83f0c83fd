// Declarations of TransformerEncoderLayer and TransformerDecoderLayer, of their parts, and of
// Transformer, which is a stack of each.
#include <utility>

#include "engine/layers/attention_cost.h"
#include "engine/layers/cost_rules.h"
#include "engine/layers/inputs.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// The parameters of a transformer layer. `attentions` are the names of its attention blocks. There
/// is a norm for each of them and one for the feed-forward block.
std::vector<ParameterSpec> BlockParameters(const LayerSpec& spec,
                                           const std::vector<std::string>& attentions) {
  const int64_t width = spec.Int("d_model");
  const int64_t hidden = spec.Int("dim_feedforward");
  const bool bias = spec.Bool("bias");
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

TensorSpec InferSequence(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t width = spec.Int("d_model");
  if (input.shape.size() != 3 || input.shape[2] != width) {
    const bool batch_first = spec.Bool("batch_first");
    RefuseShape(Str(batch_first ? "(batch, sequence, " : "(sequence, batch, ", width, ")"), input);
  }
  ExpectParameterDType(input);
  return input;
}

/// Checks the masks `inputs[padding]` and `inputs[mask]`, if they are given, of an attention from
/// `queries` to `keys`. `of` begins their names.
void ExpectMasks(const LayerSpec& spec, const TensorSpecs& inputs, const std::string& of,
                 size_t padding, size_t mask, const TensorSpec& queries, const TensorSpec& keys) {
  const size_t batch = spec.Bool("batch_first") ? 0 : 1;
  const int64_t samples = queries.shape[batch], places = keys.shape[1 - batch];
  if (inputs.size() > padding) {
    ExpectKeyPadding(inputs[padding], of + "_key_padding_mask", samples, places);
  }
  if (inputs.size() > mask) {
    ExpectAttentionMask(inputs[mask], of + "_mask", samples * spec.Int("nhead"),
                        queries.shape[1 - batch], places);
  }
}

TensorSpecs InferEncoder(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  if (inputs.empty() || inputs.size() > 3) {
    throw ShapeError(Str("expects one tensor, and perhaps masks, got ", ToString(inputs)));
  }
  InferSequence(spec, inputs[0]);
  ExpectMasks(spec, inputs, "src", 1, 2, inputs[0], inputs[0]);
  return {inputs[0]};
}

/// The inputs are one tensor, or a target and a memory with the same batch, optionally followed by
/// masks.
TensorSpecs InferDecoder(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  if (inputs.empty() || inputs.size() > 6) {
    throw ShapeError(
        Str("expects one tensor, or target and memory, and perhaps masks, got ", ToString(inputs)));
  }
  const TensorSpec &target = inputs[0], &memory = inputs[inputs.size() > 1 ? 1 : 0];
  InferSequence(spec, target);
  InferSequence(spec, memory);
  const size_t batch = spec.Bool("batch_first") ? 0 : 1;
  if (target.shape[batch] != memory.shape[batch]) {
    throw ShapeError(Str("expects target and memory of one batch, got ", ToString(inputs)));
  }
  ExpectMasks(spec, inputs, "tgt", 2, 4, target, target);
  ExpectMasks(spec, inputs, "memory", 3, 5, target, memory);
  return {target};
}

constexpr const char* kDecoder = "TransformerDecoderLayer";

/// Records the cost of the blocks with their norms, dropout and residual connections.
class TransformerCost {
 public:
  TransformerCost(LayerTape& tape, const LayerSpec& spec)
      : tape_(tape),
        spec_(spec),
        sizes_{spec.Number("d_model"), spec.Number("nhead"), spec.Number("dropout"),
               spec.Bool("batch_first")},
        dropout_(spec.Number("dropout")) {
    const std::string split = SplitOn(tape, spec);
    is_split_ = split == "heads" || split == "sequence";
    if (is_split_) sizes_.ranks = tape.model();
    if (split == "sequence") sequence_parts_ = tape.model();
  }

  std::vector<Traced> Of(const std::vector<Traced>& inputs) {
    return {Leave(OfFeedForward(OfAttention(inputs)))};
  }

  Traced OfAttention(const std::vector<Traced>& inputs) {
    const Traced& memory = inputs[inputs.size() > 1 ? 1 : 0];
    Traced x = Enter(inputs[0]);
    x = Around(x, [&](const Traced& t) { return Attention("self_attn.", t, t); });
    if (!spec_.type.starts_with(kDecoder)) return x;
    const Traced source = inputs.size() > 1 ? Enter(memory) : Enter(inputs[0]);
    return Around(x, [&](const Traced& t) { return Attention("multihead_attn.", t, source); });
  }

  Traced OfFeedForward(const Traced& x) {
    return Around(x, [&](const Traced& t) { return FeedForward(t); });
  }

 private:
  /// Enter() and Leave(): from the whole sequence to this rank's part of it, and back.
  Traced Enter(const Traced& x) {
    if (sequence_parts_ == 1 || x.parts > 1) return x;
    tape_.Cross(0, tape_.Gathered(x.bytes()));
    return tape_.Fresh(x.spec, sequence_parts_);
  }
  Traced Leave(const Traced& x) {
    if (sequence_parts_ == 1 || spec_.output_shard) return x;
    const Traced whole = tape_.Fresh(x.spec);
    tape_.Cross(tape_.Gathered(whole.bytes()), 0);
    return whole;
  }

  /// The whole sequence, on which a block works.
  Traced Gather(const Traced& x) { return sequence_parts_ == 1 ? x : tape_.Fresh(x.spec); }

  /// A sum over the ranks at the end of a block's forward, and one at the end of its backward.
  void CrossBlock(const Traced& x) {
    if (!is_split_) return;
    const double bytes = static_cast<double>(x.spec.bytes());
    tape_.Cross(tape_.Reduced(bytes), tape_.Reduced(bytes));
  }

  template <class Block>
  Traced Around(const Traced& x, const Block& block) {
    const auto add = [&](const Traced& a) {
      const Traced sum = tape_.Fresh(a);
      tape_.Touch(3 * a.bytes(), a.bytes());
      return sum;
    };
    const auto norm = [&](const Traced& t) {
      const LayerTape::Part part(tape_, "LayerNorm");
      return Normalize(tape_, t, t.elements() / t.last_dim());
    };
    if (spec_.Bool("norm_first")) return add(ApplyDropout(tape_, block(norm(x)), dropout_));
    return norm(add(ApplyDropout(tape_, block(x), dropout_)));
  }

  Traced Attention(const char* path, const Traced& x, const Traced& source) {
    sizes_.path = path;
    const Traced query = Gather(x);
    const Traced keys = source.storage == x.storage ? query : Gather(source);
    CrossBlock(x);
    return Scattered(CostOfAttention(tape_, spec_, sizes_, query, keys, keys), x);
  }

  Traced FeedForward(const Traced& x) {
    const double hidden = spec_.Number("dim_feedforward") / sizes_.ranks;
    CrossBlock(x);
    const Traced inner =
        ApplyLinear(tape_, spec_, "linear1.weight", Gather(x), sizes_.width, hidden);
    const bool is_relu = spec_.args["activation"] == Value("relu");
    // The backward's peak holds the gradient of `inner` while all kept tensors still exist. For a
    // ReLU without dropout it also holds the gradient of the ReLU's output: the second linear
    // layer, whose backward is over, kept only that output, so its backward has freed nothing.
    tape_.Scratch(0, (is_relu && dropout_ == 0 ? 2 : 1) * inner.bytes());
    const Traced active =
        is_relu && dropout_ > 0 && tape_.host().is_cpu
            ? ApplyDropout(tape_, inner, dropout_)  // DroppedRelu() keeps one tensor for both
            : ApplyDropout(tape_, Apply(tape_, inner, /*keeps_output=*/is_relu), dropout_);
    return Scattered(ApplyLinear(tape_, spec_, "linear2.weight", active, hidden, sizes_.width), x);
  }

  Traced Scattered(const Traced& y, const Traced& like) {
    return sequence_parts_ == 1 ? y : tape_.Fresh(like);
  }

  LayerTape& tape_;
  const LayerSpec& spec_;
  AttentionSizes sizes_;
  const double dropout_;
  bool is_split_ = false;
  int sequence_parts_ = 1;
};

Field Width() { return Field::Int("d_model", "features of the input and the output").AtLeast(1); }
Field Heads() {
  return Field::Int("nhead", "attention heads, each of d_model / nhead features").AtLeast(1);
}

FieldTable Fields() {
  return {
      Width(),
      Heads(),
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
      OwnDType(),
      Causal(),
  };
}

LayerType Transformer(std::string name, std::string help, std::string shapes,
                      std::vector<std::string> attentions, InferFunction infer) {
  return {
      .name = std::move(name),
      .fields = Fields(),
      .help = std::move(help),
      .shapes = std::move(shapes),
      .multiplies_linear = true,
      .splits = {"heads", "sequence"},
      .default_split = "heads",
      .finish = [](LayerSpec& spec) { ExpectDivisible(spec, "d_model", "nhead"); },
      .parameters = [=](const LayerSpec& spec) { return BlockParameters(spec, attentions); },
      .infer = std::move(infer),
      .cost = [](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                 const TensorSpecs&) { return TransformerCost(tape, spec).Of(inputs); },
      .kept_of_token =
          [=](const LayerSpec& spec) { return 2 * spec.Int("d_model") * std::ssize(attentions); }};
}

LayerType EncoderLayer() {
  LayerType type = Transformer("TransformerEncoderLayer", "self attention and a feed-forward block",
                               "(L, N, d_model) -> (L, N, d_model); with batch_first N comes first",
                               {"self_attn"}, InferEncoder);
  type.is_token_wise = [](const LayerSpec& spec) {
    return spec.Bool("causal") && spec.Bool("batch_first");
  };
  return type;
}

LayerType DecoderLayer() {
  return Transformer(
      kDecoder, "self attention, attention to the memory (of one input: that input), feed-forward",
      "(L, N, d_model) and memory (M, N, d_model) -> (L, N, d_model); with batch_first N comes "
      "first",
      {"self_attn", "multihead_attn"}, InferDecoder);
}

// ---- Transformer: a stack of encoder layers, and one of decoder layers that see its output

TensorSpecs InferTransformer(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  if (inputs.size() < 2 || inputs.size() > InputNames(spec.type).size()) {
    throw ShapeError(
        Str("expects a source and a target, and perhaps masks, got ", ToString(inputs)));
  }
  const TensorSpecs memory = InferLayer(spec.children[0], EncoderInputs(inputs), script);
  return InferLayer(spec.children[1], DecoderInputs(inputs, memory[0]), script);
}

std::vector<ParameterSpec> TransformerParameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs;
  for (const LayerSpec& part : spec.children) {
    Append(specs, Prefixed(part.name, ParametersOf(part)));
  }
  return specs;
}

std::vector<Traced> CostOfTransformer(LayerTape& tape, const LayerSpec& spec,
                                      const std::vector<Traced>& inputs,
                                      const TensorSpecs& outputs) {
  const std::vector<Traced> memory =
      TraceLayer(tape, spec.children[0], EncoderInputs(inputs), {inputs[0].spec});
  return TraceLayer(tape, spec.children[1], DecoderInputs(inputs, memory[0]), outputs);
}

/// Makes the encoder or decoder (`part`) of a Transformer: a stack of the layers that the
/// Transformer's arguments describe, and a norm. It has no script position, so errors show that of
/// the Transformer.
LayerSpec StackOf(const LayerSpec& whole, std::string_view part, const std::string& type) {
  Value::Map args;
  for (const Field& field : Fields()) {
    const bool is_of_whole = field.name == "device" || field.name == "dtype";
    const bool is_of_decoder = field.name == "causal";
    if (is_of_whole || (is_of_decoder && part != "decoder")) continue;
    args.emplace_back(field.name, whole.args[field.name]);
  }
  const Value& split = whole.args["split"];
  args.emplace_back("split", split.is_null() ? Value("none") : split);
  const LayerSpec layer = MakeLayer(type + "Layer", {}, args, {}, "");
  const Value::Map of_norm = {{"eps", whole.args["layer_norm_eps"]}, {"bias", whole.args["bias"]}};
  const LayerSpec norm = MakeLayer("LayerNorm", {whole.args["d_model"]}, of_norm, {}, "");
  const Value& count = whole.args[Str("num_", part, "_layers")];
  LayerSpec stack = MakeLayer(type, {}, {{"num_layers", count}}, {layer, norm}, "");
  stack.name = part;
  return stack;
}

void FinishTransformer(LayerSpec& spec) {
  ExpectDivisible(spec, "d_model", "nhead");
  spec.children = {StackOf(spec, "encoder", "TransformerEncoder"),
                   StackOf(spec, "decoder", "TransformerDecoder")};
}

LayerType WholeTransformer() {
  const auto layers = [](std::string name) {
    return LayerCount(std::move(name), "how often the layer stands").Default(6);
  };
  const char* const own = "give TransformerEncoder and TransformerDecoder layers of their own";
  FieldTable fields = {Width().Default(512), Heads().Default(8), layers("num_encoder_layers"),
                       layers("num_decoder_layers")};
  for (const Field& field : Fields()) {
    if (field.name == "d_model" || field.name == "nhead") continue;
    if (field.name == "layer_norm_eps") {
      fields.push_back(Field::Refused("custom_encoder", own));
      fields.push_back(Field::Refused("custom_decoder", own));
    }
    fields.push_back(field);
  }
  return {.name = "Transformer",
          .fields = std::move(fields),
          .help =
              "an encoder of the source, and a decoder of the target that sees its output, with "
              "a norm behind each; causal is the decoder's",
          .shapes =
              "(S, N, d_model) and (T, N, d_model) -> (T, N, d_model); with batch_first N "
              "comes first",
          .splits = {"heads"},
          .default_split = "heads",
          .finish = FinishTransformer,
          .parameters = TransformerParameters,
          .infer = InferTransformer,
          .cost = CostOfTransformer};
}

// ---- Parts (parts.h): the attentions, and the feed-forward block

/// True if the parameter belongs to the feed-forward block, which has the last norm.
bool IsOfFeedForward(const std::string& parameter, bool is_decoder) {
  return parameter.starts_with("linear") || parameter.starts_with(is_decoder ? "norm3" : "norm2");
}

LayerType Part(const LayerType& whole, const char* name, bool is_feed_forward) {
  LayerType type = {.name = Str(whole.name, ".", name),
                    .fields = whole.fields,
                    .help = Str("a part of ", whole.name),
                    .library = "",
                    .multiplies_linear = true,
                    .is_token_wise = whole.is_token_wise};
  type.parameters = [=, all = whole.parameters,
                     is_decoder = whole.name == kDecoder](const LayerSpec& spec) {
    std::vector<ParameterSpec> specs = all(spec);
    std::erase_if(specs, [&](const ParameterSpec& parameter) {
      return IsOfFeedForward(parameter.name, is_decoder) != is_feed_forward;
    });
    return specs;
  };
  return type;
}

/// The attention part. If a decoder layer has a memory, the feed-forward part must know the
/// memory's length to skip the draws of the attention to it. The second output, a tensor of
/// integers, has that length as its size.
LayerType AttentionPart(const LayerType& whole) {
  LayerType type = Part(whole, "attention", /*is_feed_forward=*/false);
  type.kept_of_token = whole.kept_of_token;
  const bool is_decoder = whole.name == kDecoder;
  type.infer = [=, infer = whole.infer](const LayerSpec& spec, const TensorSpecs& inputs,
                                        Script* script) {
    TensorSpecs outputs = infer(spec, inputs, script);
    if (!is_decoder || inputs.size() == 1) return outputs;
    outputs.push_back({{inputs[1].shape[spec.Bool("batch_first") ? 1 : 0]}, DType::kInt64});
    return outputs;
  };
  type.cost = [](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                 const TensorSpecs& outputs) {
    std::vector<Traced> traced = {TransformerCost(tape, spec).OfAttention(inputs)};
    if (outputs.size() > 1) traced.push_back(tape.Fresh(outputs[1]));
    return traced;
  };
  return type;
}

LayerType FeedForwardPart(const LayerType& whole) {
  LayerType type = Part(whole, "feed_forward", /*is_feed_forward=*/true);
  type.infer = [](const LayerSpec&, const TensorSpecs& inputs, Script*) {
    return TensorSpecs{inputs[0]};
  };
  type.cost = [](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                 const TensorSpecs&) {
    return std::vector<Traced>{TransformerCost(tape, spec).OfFeedForward(inputs[0])};
  };
  return type;
}

}  // namespace

std::vector<LayerType> TransformerParts() {
  std::vector<LayerType> types;
  for (const LayerType& whole : {EncoderLayer(), DecoderLayer()}) {
    types.push_back(AttentionPart(whole));
    types.push_back(FeedForwardPart(whole));
  }
  return types;
}

std::vector<LayerType> TransformerTypes() {
  return {WholeTransformer(), EncoderLayer(), DecoderLayer()};
}

}  // namespace strata::layers
