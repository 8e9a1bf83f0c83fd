// What each type of layer does: the operators of engine/layers, and what PyTorch's autograd keeps
// for their backward.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/costs/layer_tape.h"
#include "engine/spec/layers/layers.h"
#include "engine/spec/layers/split.h"

namespace strata {
namespace {

using Tensors = std::vector<Traced>;

/// How a layer is shared by the ranks of the model axis; "" where there is one.
std::string SplitOn(const LayerTape& tape, const LayerSpec& spec) {
  return tape.model() > 1 ? SplitOf(spec) : "";
}

double Number(const LayerSpec& spec, const char* name) {
  return static_cast<double>(spec.args[name].as_int());
}

bool Flag(const LayerSpec& spec, const char* name) { return spec.args[name].as_bool(); }

// ---- Elements

/// Reads x, writes y; the backward reads dy and what was kept, and writes dx.
void TouchElements(LayerTape& tape, const Traced& x, const Traced& y) {
  tape.Touch(x.bytes() + y.bytes(), 2 * y.bytes() + x.bytes());
}

Traced Fresh(LayerTape& tape, const Traced& x) { return tape.Fresh(x.spec, x.parts); }

/// A function of one tensor that keeps its input or its output.
Traced Apply(LayerTape& tape, const Traced& x, bool keeps_output) {
  const Traced y = Fresh(tape, x);
  TouchElements(tape, x, y);
  tape.Keep(keeps_output ? y : x);
  return y;
}

Traced Drop(LayerTape& tape, const Traced& x, double p) {
  if (p == 0) return x;
  tape.Keep(Fresh(tape, x));  // the factors
  const Traced y = Fresh(tape, x);
  TouchElements(tape, x, y);
  tape.Touch(3 * x.bytes(), 0);  // which are drawn and scaled
  return y;
}

Tensors TraceActivation(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  const bool is_leaky = spec.type == "LeakyReLU";
  const bool keeps_output = spec.type == "ReLU" || spec.type == "Tanh" || spec.type == "Sigmoid" ||
                            spec.type == "Softmax" || (is_leaky && Flag(spec, "inplace"));
  return {Apply(tape, inputs[0], keeps_output)};
}

Tensors TraceDropout(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  return {Drop(tape, inputs[0], spec.args["p"].as_double())};
}

/// The same memory in another shape.
Tensors TraceShape(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script* script) {
  return {tape.View(inputs[0], InferLayer(spec, {inputs[0].spec}, script)[0])};
}

Tensors TraceSkip(LayerTape&, const LayerSpec&, const Tensors& inputs, Script*) { return inputs; }

Tensors TraceJoin(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script* script) {
  if (spec.args["how"] == Value("pass")) return inputs;
  TensorSpecs specs;
  for (const Traced& input : inputs) specs.push_back(input.spec);
  Tensors outputs;
  for (TensorSpec& output : InferLayer(spec, specs, script)) {
    outputs.push_back(tape.Fresh(std::move(output)));
    tape.Touch(2 * outputs.back().bytes(), outputs.back().bytes());
  }
  return outputs;
}

Traced Normalize(LayerTape& tape, const Traced& x, double statistics) {
  tape.Keep(x);
  tape.Keep(tape.Fresh(x, 2 * statistics));
  const Traced y = Fresh(tape, x);
  tape.Touch(2 * x.bytes() + y.bytes(), 5 * x.bytes(), 2 * x.bytes());
  return y;
}

Tensors TraceNorm(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  Traced x = inputs[0];
  double statistics = 0;
  if (spec.type == "BatchNorm2d") {
    statistics = static_cast<double>(x.spec.shape[1]);
  } else if (spec.type == "GroupNorm") {
    statistics = static_cast<double>(x.spec.shape[0]) * Number(spec, "num_groups");
  } else {
    double inside = 1;
    for (const int64_t size : spec.args["normalized_shape"].as_ints()) {
      inside *= static_cast<double>(size);
    }
    statistics = x.elements() / inside;
  }
  const bool is_split = !SplitOn(tape, spec).empty();
  const double whole = static_cast<double>(x.spec.bytes());
  if (is_split && !spec.takes) {
    tape.Cross(0, tape.Gathered(whole));
    x = tape.Fresh(x.spec, tape.model());
  }
  Traced y = Normalize(tape, x, statistics);
  if (spec.type == "RMSNorm") {  // composed of operators: x * rsqrt(mean(x^2)), then the weight
    tape.Keep(Fresh(tape, x));
    tape.Touch(3 * x.bytes(), 3 * x.bytes());
  }
  if (is_split && !spec.gives) {
    tape.Cross(tape.Gathered(whole), 0);
    y = tape.Fresh(y.spec);
  }
  return {y};
}

// ---- Windows

Tensors TracePool(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script* script) {
  const Traced& x = inputs[0];
  const Traced y = tape.Fresh(InferLayer(spec, {x.spec}, script)[0]);
  TouchElements(tape, x, y);
  tape.Keep(x);
  if (spec.type == "MaxPool2d") tape.Keep(tape.Fresh({y.spec.shape, DType::kInt64}));
  return {y};
}

// ---- Products

/// y = x W: so many products of x with weights of `weights` elements.
void Multiply(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
              double flops, double weights) {
  const double bytes = 4 * weights;
  tape.Multiply(flops, /*has_weight=*/true, spec.frozen);
  tape.Touch(x.bytes() + bytes + y.bytes(), y.bytes() + bytes + x.bytes(),
             spec.frozen ? 0 : x.bytes() + y.bytes() + 2 * bytes);
}

/// The same, with weight gradients that may wait.
void Product(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y, double flops,
             double weights) {
  Multiply(tape, spec, x, y, flops, weights);
  if (!spec.frozen) tape.Defer(x, y);
}

/// A linear layer of `in` to `out` features, of both of which this rank has what is said.
Traced ApplyLinear(LayerTape& tape, const LayerSpec& spec, const Traced& x, double in, double out,
                   int parts) {
  const double rows = x.elements() / in;
  TensorSpec shape = x.spec;
  shape.shape.back() = static_cast<int64_t>(out) * parts;
  const Traced y = tape.Fresh(std::move(shape), parts);
  Product(tape, spec, x, y, 2 * rows * in * out, in * out);
  if (!spec.frozen) tape.MultiplyRows(x, y, rows);
  return y;
}

Tensors TraceLinear(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  const double in = Number(spec, "in_features"), out = Number(spec, "out_features");
  const std::string split = SplitOn(tape, spec);
  const int model = tape.model();
  Traced x = inputs[0];
  if (split.empty()) return {ApplyLinear(tape, spec, x, in, out, 1)};
  if (split == "column") {
    tape.Cross(0, tape.Reduced(x.bytes()));
    const Traced part = ApplyLinear(tape, spec, x, in, out / model, model);
    if (spec.gives) return {part};
    const Traced whole = tape.Fresh(part.spec);
    tape.Cross(tape.Gathered(whole.bytes()), 0);
    return {whole};
  }
  if (x.parts == 1) {
    tape.Cross(0, tape.Gathered(x.bytes()));
    x = tape.Fresh(x.spec, model);
  }
  const Traced y = ApplyLinear(tape, spec, x, in / model, out, 1);
  tape.Cross(tape.Reduced(y.bytes()), 0);
  return {y};
}

Tensors TraceConvolution(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs,
                         Script* script) {
  const Traced& x = inputs[0];
  const Traced y = tape.Fresh(InferLayer(spec, {x.spec}, script)[0]);
  const double weights = static_cast<double>(ParametersOf(spec)[0].elements());
  const bool is_transposed = spec.args.Has("output_padding");
  // Each element of the output (transposed: of the input) meets one filter of `weights` in all.
  const double channels = Number(spec, is_transposed ? "in_channels" : "out_channels");
  const double meetings = (is_transposed ? x : y).elements() / channels;
  Product(tape, spec, x, y, 2 * meetings * weights, weights);
  tape.Keep(x);
  tape.Scratch(0, 4 * weights);  // the weight's gradient is computed, then added
  return {y};
}

Tensors TraceEmbedding(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs,
                       Script* script) {
  const Traced& indices = inputs[0];
  const std::string split = SplitOn(tape, spec);
  const int parts = split == "column" ? tape.model() : 1;
  Traced y = tape.Fresh(InferLayer(spec, {indices.spec}, script)[0], parts);
  tape.Touch(2 * y.bytes(), 0, spec.frozen ? 0 : 3 * y.bytes());
  if (!spec.frozen) tape.Defer(indices, y);
  const double rows = std::min(indices.elements(), Number(spec, "num_embeddings"));
  tape.Scratch(0, 4 * rows * Number(spec, "embedding_dim") / parts);
  if (split == "row") tape.Cross(tape.Reduced(y.bytes()), 0);
  if (split == "column" && !spec.gives) {
    y = tape.Fresh(y.spec);
    tape.Cross(tape.Gathered(y.bytes()), 0);
  }
  return {y};
}

// ---- Attention

struct AttentionSizes {
  double width = 0;  ///< of queries, whole
  double heads = 0;
  double dropout = 0;
  bool batch_first = false;
  double ranks = 1;  ///< that share the heads
};

/// softmax(q k^T) v of this rank's heads: what is kept beside q, k and v.
Traced Attend(LayerTape& tape, const AttentionSizes& sizes, const Traced& query,
              const Traced& keys) {
  const size_t batch_dim = sizes.batch_first ? 0 : 1;
  const double batch = static_cast<double>(query.spec.shape[batch_dim]);
  const double targets = static_cast<double>(query.spec.shape[1 - batch_dim]);
  const double sources = static_cast<double>(keys.spec.shape[1 - batch_dim]);
  const double scores = batch * sizes.heads * targets * sources / sizes.ranks;
  const double features = batch * targets * sizes.width / sizes.ranks;
  const double of_keys = batch * sources * sizes.width / sizes.ranks;
  tape.Multiply(4 * scores * sizes.width / sizes.heads, /*has_weight=*/false, false);
  const auto keep = [&](double elements) { tape.Keep(tape.Fresh(query, elements)); };
  if (sizes.dropout > 0) {
    keep(features);  // scaled queries
    keep(of_keys);   // scaled keys
    keep(of_keys);   // values
    keep(scores);    // their softmax
    keep(scores);    // factors of dropout
    keep(scores);    // their product
    tape.Touch(4 * 8 * scores, 4 * 6 * scores);
    tape.Scratch(4 * 2 * scores, 4 * 3 * scores);
  } else {
    keep(features);  // the flash kernel keeps its output, and a sum for each row
    keep(scores / sources);
    tape.Touch(4 * 2 * features, 4 * 4 * features);
  }
  return tape.Fresh(query.spec, static_cast<int>(sizes.ranks));
}

/// Projections, attention, projection back. The ranks of the model axis have some heads each.
Traced AttentionBlock(LayerTape& tape, const LayerSpec& spec, const AttentionSizes& sizes,
                      const Traced& query, const Traced& key, const Traced& value) {
  const double own = sizes.width / sizes.ranks;
  const auto project = [&](const Traced& x, double count) {
    const Traced y = ApplyLinear(tape, spec, x, x.last_dim(), count * own, 1);
    if (sizes.dropout == 0) tape.Keep(y);  // the flash kernel works on views of it
  };
  if (key.storage == query.storage && value.storage == key.storage) {
    project(query, 3);
  } else if (key.storage == value.storage) {
    project(query, 1);
    project(key, 2);
  } else {
    project(query, 1);
    project(key, 1);
    project(value, 1);
  }
  return ApplyLinear(tape, spec, Attend(tape, sizes, query, key), own, sizes.width, 1);
}

Tensors TraceAttention(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  const bool is_split = !SplitOn(tape, spec).empty();
  const AttentionSizes sizes = {Number(spec, "embed_dim"), Number(spec, "num_heads"),
                                spec.args["dropout"].as_double(), Flag(spec, "batch_first"),
                                is_split ? tape.model() : 1.0};
  const bool has_three = inputs.size() == 3;
  const Traced y = AttentionBlock(tape, spec, sizes, inputs[0], inputs[has_three ? 1 : 0],
                                  inputs[has_three ? 2 : 0]);
  if (is_split) tape.Cross(tape.Reduced(y.bytes()), tape.Reduced(inputs[0].bytes()));
  return {y};
}

// ---- Transformer layers

/// Blocks with their norms, dropout and residual connections.
class Transformer {
 public:
  Transformer(LayerTape& tape, const LayerSpec& spec)
      : tape_(tape),
        spec_(spec),
        sizes_{Number(spec, "d_model"), Number(spec, "nhead"), spec.args["dropout"].as_double(),
               Flag(spec, "batch_first"), 1},
        dropout_(spec.args["dropout"].as_double()) {
    const std::string split = SplitOn(tape, spec);
    is_split_ = split == "heads" || split == "sequence";
    if (is_split_) sizes_.ranks = tape.model();
    if (split == "sequence") sequence_parts_ = tape.model();
  }

  Tensors Trace(const Tensors& inputs) {
    const Traced& memory = inputs.back();
    Traced x = Enter(inputs[0]);
    x = Around(x, [&](const Traced& t) { return Attention(t, t); });
    if (spec_.type == "TransformerDecoderLayer") {
      const Traced source = inputs.size() > 1 ? Enter(memory) : Enter(inputs[0]);
      x = Around(x, [&](const Traced& t) { return Attention(t, source); });
    }
    x = Around(x, [&](const Traced& t) { return FeedForward(t); });
    return {Leave(x)};
  }

 private:
  /// To the rank's part of the sequence, and back.
  Traced Enter(const Traced& x) {
    if (sequence_parts_ == 1 || x.parts > 1) return x;
    tape_.Cross(0, tape_.Gathered(x.bytes()));
    return tape_.Fresh(x.spec, sequence_parts_);
  }
  Traced Leave(const Traced& x) {
    if (sequence_parts_ == 1 || spec_.gives) return x;
    const Traced whole = tape_.Fresh(x.spec);
    tape_.Cross(tape_.Gathered(whole.bytes()), 0);
    return whole;
  }

  /// What a block works on: the whole sequence.
  Traced Gather(const Traced& x) { return sequence_parts_ == 1 ? x : tape_.Fresh(x.spec); }

  /// A sum over the ranks at the end of a block's forward, and one at the beginning's backward.
  void CrossBlock(const Traced& x) {
    if (!is_split_) return;
    const double bytes = static_cast<double>(x.spec.bytes());
    tape_.Cross(tape_.Reduced(bytes), tape_.Reduced(bytes));
  }

  template <class Block>
  Traced Around(const Traced& x, const Block& block) {
    const auto add = [&](const Traced& a) {
      const Traced sum = Fresh(tape_, a);
      tape_.Touch(3 * a.bytes(), a.bytes());
      return sum;
    };
    const auto norm = [&](const Traced& t) {
      return Normalize(tape_, t, t.elements() / t.last_dim());
    };
    if (Flag(spec_, "norm_first")) return add(Drop(tape_, block(norm(x)), dropout_));
    return norm(add(Drop(tape_, block(x), dropout_)));
  }

  Traced Attention(const Traced& x, const Traced& source) {
    const Traced query = Gather(x);
    const Traced keys = source.storage == x.storage ? query : Gather(source);
    CrossBlock(x);
    return Scattered(AttentionBlock(tape_, spec_, sizes_, query, keys, keys), x);
  }

  Traced FeedForward(const Traced& x) {
    const double hidden = Number(spec_, "dim_feedforward") / sizes_.ranks;
    CrossBlock(x);
    const Traced inner = ApplyLinear(tape_, spec_, Gather(x), sizes_.width, hidden, 1);
    const bool is_relu = spec_.args["activation"] == Value("relu");
    tape_.Scratch(0, inner.bytes());  // its gradient, while all is kept
    const Traced active = Drop(tape_, Apply(tape_, inner, /*keeps_output=*/is_relu), dropout_);
    return Scattered(ApplyLinear(tape_, spec_, active, hidden, sizes_.width, 1), x);
  }

  Traced Scattered(const Traced& y, const Traced& like) {
    return sequence_parts_ == 1 ? y : Fresh(tape_, like);
  }

  LayerTape& tape_;
  const LayerSpec& spec_;
  AttentionSizes sizes_;
  const double dropout_;
  bool is_split_ = false;
  int sequence_parts_ = 1;
};

Tensors TraceTransformer(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script*) {
  return Transformer(tape, spec).Trace(inputs);
}

// ---- Layers inside others

Tensors TraceChain(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs, Script* script) {
  Tensors x = inputs;
  for (const LayerSpec& child : spec.children) x = TraceLayer(tape, child, x, script);
  return x;
}

Tensors TraceResidual(LayerTape& tape, const LayerSpec& spec, const Tensors& inputs,
                      Script* script) {
  Tensors outputs = TraceChain(tape, spec, inputs, script);
  for (Traced& output : outputs) {
    output = Fresh(tape, output);
    tape.Touch(3 * output.bytes(), output.bytes());
  }
  return outputs;
}

// ---- Layers in Lua

/// Elements of a matrix that leads from the last dim of x to that of y; 0 when there is none.
double MatrixBetween(const LayerSpec& spec, const TensorSpec& x, const TensorSpec& y) {
  if (x.shape.empty() || y.shape.empty() || !IsFloating(x.dtype)) return 0;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (parameter.shape.size() != 2) continue;
    std::array<int64_t, 2> ends = {x.shape.back(), y.shape.back()};
    std::array<int64_t, 2> sizes = {parameter.shape[0], parameter.shape[1]};
    std::ranges::sort(ends);
    std::ranges::sort(sizes);
    if (ends == sizes) return static_cast<double>(parameter.elements());
  }
  return 0;
}

// ---- The table

using Rule = Tensors (*)(LayerTape&, const LayerSpec&, const Tensors&, Script*);

struct TypeRule {
  std::string_view type;
  Rule rule;
};

constexpr TypeRule kRules[] = {
    {"Linear", TraceLinear},
    {"Conv1d", TraceConvolution},
    {"Conv2d", TraceConvolution},
    {"ConvTranspose2d", TraceConvolution},
    {"Embedding", TraceEmbedding},
    {"LayerNorm", TraceNorm},
    {"RMSNorm", TraceNorm},
    {"BatchNorm2d", TraceNorm},
    {"GroupNorm", TraceNorm},
    {"ReLU", TraceActivation},
    {"GELU", TraceActivation},
    {"SiLU", TraceActivation},
    {"Tanh", TraceActivation},
    {"Sigmoid", TraceActivation},
    {"Softmax", TraceActivation},
    {"LeakyReLU", TraceActivation},
    {"Dropout", TraceDropout},
    {"MaxPool2d", TracePool},
    {"AvgPool2d", TracePool},
    {"AdaptiveAvgPool2d", TracePool},
    {"Identity", TraceShape},
    {"Flatten", TraceShape},
    {"Unflatten", TraceShape},
    {"Sequential", TraceChain},
    {"Residual", TraceResidual},
    {"MultiheadAttention", TraceAttention},
    {"TransformerEncoderLayer", TraceTransformer},
    {"TransformerDecoderLayer", TraceTransformer},
    {"skip", TraceSkip},
    {"join", TraceJoin},
};

}  // namespace

std::vector<Traced> TraceScripted(LayerTape& tape, const LayerSpec& spec,
                                  const std::vector<Traced>& inputs, const TensorSpecs& outputs,
                                  Script* script) {
  tape.Guess();
  TensorSpecs specs;
  for (const Traced& input : inputs) specs.push_back(input.spec);
  const auto memory = script ? script->MeasureMemory(spec, specs) : std::nullopt;
  const Traced& x = inputs.front();
  Tensors given;
  for (const TensorSpec& output : outputs) {
    given.push_back(memory && memory->passes_input ? tape.View(x, output) : tape.Fresh(output));
  }
  const Traced& y = given.front();
  const double matrix = MatrixBetween(spec, x.spec, y.spec);
  const double flops = matrix > 0 ? 2 * matrix * x.elements() / x.last_dim() : 0;
  if (matrix > 0 && !memory) {
    Product(tape, spec, x, y, flops, matrix);
  } else if (matrix > 0) {
    Multiply(tape, spec, x, y, flops, matrix);
  } else {
    TouchElements(tape, x, y);
  }
  if (!memory) return given;
  // Autograd computes the weights' gradients with the input's: nothing waits for W.
  if (memory->keeps_input) std::ranges::for_each(inputs, [&](const Traced& t) { tape.Keep(t); });
  if (memory->keeps_output) std::ranges::for_each(given, [&](const Traced& t) { tape.Keep(t); });
  tape.Measured(*memory);
  return given;
}

std::vector<Traced> TraceLayer(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, Script* script) {
  STRATA_CHECK(!inputs.empty()) << spec.type;
  if (spec.has_scripted_forward()) {  // inside another layer
    TensorSpecs specs;
    for (const Traced& input : inputs) specs.push_back(input.spec);
    return TraceScripted(tape, spec, inputs, InferLayer(spec, specs, script), script);
  }
  const auto rule = std::ranges::find(kRules, spec.type, &TypeRule::type);
  if (rule == std::end(kRules)) {
    throw ConfigError(Str(spec.where, ": what nn.", spec.type, " costs is not known: it needs a ",
                          "rule in engine/plan/costs/layer_rules.cc"));
  }
  return rule->rule(tape, spec, inputs, script);
}

bool HasCostRule(std::string_view type) {
  return std::ranges::find(kRules, type, &TypeRule::type) != std::end(kRules);
}

void TraceLoss(LayerTape& tape, const LayerSpec& loss, const Traced& output) {
  if (loss.type == "CrossEntropyLoss") {
    tape.Keep(Fresh(tape, output));  // the logarithms of the shares
  } else {
    tape.Keep(output);
  }
  tape.Touch(4 * output.bytes(), 4 * output.bytes());
  tape.Scratch(0, output.bytes());  // the gradient of those logarithms
  if (loss.scripted) tape.Guess();
}

}  // namespace strata
