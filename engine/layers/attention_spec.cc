#include "engine/layers/attention_cost.h"
#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// The number of features of keys ("kdim") or values ("vdim"); embed_dim if the call does not say.
int64_t Width(const LayerSpec& spec, const char* name) {
  const Value& width = spec.args[name];
  return (width.is_null() ? spec.args["embed_dim"] : width).as_int();
}

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  const int64_t embed = spec.Int("embed_dim");
  const int64_t keys = Width(spec, "kdim");
  const int64_t values = Width(spec, "vdim");
  const bool bias = spec.Bool("bias");
  std::vector<ParameterSpec> specs;
  if (keys == embed && values == embed) {
    specs.push_back({.name = "in_proj_weight", .shape = {3 * embed, embed}});
  } else {
    specs = {{.name = "q_proj_weight", .shape = {embed, embed}},
             {.name = "k_proj_weight", .shape = {embed, keys}},
             {.name = "v_proj_weight", .shape = {embed, values}}};
  }
  if (bias) specs.push_back({.name = "in_proj_bias", .shape = {3 * embed}});
  if (spec.Bool("add_bias_kv")) {
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
  const bool lacks_value = inputs.size() == 2 && inputs[1].shape.size() == 3;
  if (inputs.empty() || inputs.size() > 5 || lacks_value) {
    throw ShapeError(Str("expects one tensor, or query, key and value, and perhaps masks, got ",
                         ToString(inputs)));
  }
  const bool batch_first = spec.Bool("batch_first");
  const char* layout = batch_first ? "batch, sequence" : "sequence, batch";
  const TensorSpec& query = inputs[0];
  const bool has_keys = inputs.size() >= 3;
  const TensorSpec& key = has_keys ? inputs[1] : query;
  const TensorSpec& value = has_keys ? inputs[2] : query;
  ExpectSequence(query, spec.Int("embed_dim"), layout);
  ExpectSequence(key, Width(spec, "kdim"), layout);
  ExpectSequence(value, Width(spec, "vdim"), layout);
  const size_t batch = batch_first ? 0 : 1;
  if (query.shape[batch] != key.shape[batch] || key.shape[0] != value.shape[0] ||
      key.shape[1] != value.shape[1]) {
    throw ShapeError(Str("expects query, key and value of one batch, keys as long as values, got ",
                         ToString(inputs)));
  }
  const int64_t samples = query.shape[batch], keys = key.shape[1 - batch];
  if (inputs.size() == 2 || inputs.size() > 3) {
    ExpectKeyPadding(inputs[has_keys ? 3 : 1], "key_padding_mask", samples, keys);
  }
  if (inputs.size() == 5) {
    ExpectAttentionMask(inputs[4], "attn_mask", samples * spec.Int("num_heads"),
                        query.shape[1 - batch], keys);
  }
  return {query};
}

/// Records the cost of softmax(q k^T) v for this rank's heads, and the tensors that its backward
/// keeps in addition to q, k and v. Returns the output. With dropout the scores are stored;
/// without, the fused kernel (FlashAttention) stores none.
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
  const DType before = tape.compute();
  if (sizes.dropout > 0) {
    // In half precision ATen computes this path in float32.
    if (DTypeSize(before) < DTypeSize(DType::kFloat32)) tape.set_compute(DType::kFloat32);
    keep(features);  // scaled queries
    keep(of_keys);   // scaled keys
    keep(of_keys);   // values
    keep(scores);    // their softmax
    keep(scores);    // factors of dropout (0 or 1 / (1 - p))
    keep(scores);    // softmax times factors
    tape.Touch(4 * 8 * scores, 4 * 6 * scores);
    tape.Scratch(4 * 2 * scores, 4 * 3 * scores);
    tape.set_compute(before);
  } else {
    keep(features);  // the fused kernel keeps its output and the log-sum-exp of each row
    keep(scores / sources);
    tape.Touch(4 * 2 * features, 4 * 4 * features);
  }
  return tape.Fresh(query.spec, static_cast<int>(sizes.ranks));
}

std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs&) {
  const bool is_split = !SplitOn(tape, spec).empty();
  const AttentionSizes sizes = {spec.Number("embed_dim"), spec.Number("num_heads"),
                                spec.Number("dropout"), spec.Bool("batch_first"),
                                is_split ? tape.model() : 1.0};
  const bool has_keys = inputs.size() >= 3;
  const Traced& value = inputs[has_keys ? 2 : 0];
  const Traced y = CostOfAttention(tape, spec, sizes, inputs[0], inputs[has_keys ? 1 : 0], value);
  if (is_split) tape.Cross(tape.Reduced(y.bytes()), tape.Reduced(inputs[0].bytes()));
  return {y};
}

}  // namespace

void ExpectKeyPadding(const TensorSpec& mask, std::string_view name, int64_t batch, int64_t keys) {
  const bool fits = mask.shape == Shape{batch, keys};
  if (fits && (mask.dtype == DType::kBool || IsFloating(mask.dtype))) return;
  throw ShapeError(Str("expects ", name, " bool (", batch, ", ", keys, "), got ", mask.ToString()));
}

void ExpectAttentionMask(const TensorSpec& mask, std::string_view name, int64_t batches,
                         int64_t queries, int64_t keys) {
  const bool fits =
      mask.shape == Shape{queries, keys} || mask.shape == Shape{batches, queries, keys};
  if (fits && (mask.dtype == DType::kBool || IsFloating(mask.dtype))) return;
  throw ShapeError(Str("expects ", name, " bool (", queries, ", ", keys, ") or (", batches, ", ",
                       queries, ", ", keys, "), got ", mask.ToString()));
}

Traced CostOfAttention(LayerTape& tape, const LayerSpec& spec, const AttentionSizes& sizes,
                       const Traced& query, const Traced& key, const Traced& value) {
  const double own = sizes.width / sizes.ranks;
  const bool is_packed = key.last_dim() == sizes.width && value.last_dim() == sizes.width;
  const auto project = [&](const char* weight, const Traced& x, double count) {
    const std::string name = Str(sizes.path, is_packed ? "in_proj_weight" : weight);
    const Traced y = ApplyLinear(tape, spec, name, x, x.last_dim(), count * own);
    if (sizes.dropout == 0) tape.Keep(y);  // the fused kernel keeps views of it
  };
  const bool key_is_value = is_packed && key.storage == value.storage;
  if (key_is_value && key.storage == query.storage) {
    project("", query, 3);
  } else if (key_is_value) {
    project("", query, 1);
    project("", key, 2);
  } else {
    project("q_proj_weight", query, 1);
    project("k_proj_weight", key, 1);
    project("v_proj_weight", value, 1);
  }
  const Traced mixed = Attend(tape, sizes, query, key);
  return ApplyLinear(tape, spec, Str(sizes.path, "out_proj.weight"), mixed, own, sizes.width);
}

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
              OwnDType(),
              Causal(),
          },
      .help = "attention; of one input x it is attention(x, x, x). Gives no weights",
      .shapes = "(L, N, embed_dim) -> (L, N, embed_dim); with batch_first N comes first",
      .multiplies_linear = true,
      .splits = {"heads"},
      .finish = [](LayerSpec& spec) { ExpectDivisible(spec, "embed_dim", "num_heads"); },
      .parameters = Parameters,
      .infer = Infer,
      .cost = Cost,
      .kept_of_token = [](const LayerSpec& spec) { return 2 * spec.Int("embed_dim"); },
      .is_token_wise =
          [](const LayerSpec& spec) {
            return spec.Bool("causal") && spec.Bool("batch_first") && !spec.Bool("add_bias_kv") &&
                   !spec.Bool("add_zero_attn");
          },
  }};
}

}  // namespace strata::layers
