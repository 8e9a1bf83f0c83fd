// CheckSplits() and LayOut().
//
// CheckSplits() walks through the layers, and the layers inside them, and checks every size that
// the ranks share. LayOut() decides where a tensor stays in parts between two layers. It walks
// along the chain once. Each layer offers its output in parts along a dim (Offer()) or not at all.
// The offer is accepted if the next layer, past element-wise ones, can take such parts (Takes()),
// or if that is the loss. Element-wise layers pass the parts on. Everywhere else the layer's
// crossings make the tensor whole.
#include "engine/layers/split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

constexpr int kLastDim = -1;

bool IsElementwise(const LayerSpec& spec) {
  const LayerType* type = spec.has_scripted_forward() ? nullptr : FindLayerType(spec.type);
  return type && type->elementwise;
}

bool IsTransformer(const LayerSpec& spec) { return spec.args.Has("batch_first"); }

// Checks

void ExpectDivisible(int64_t size, int ranks, const std::string& what) {
  if (size % ranks == 0) return;
  throw ConfigError(Str(what, " ", size, " is not divisible by model = ", ranks));
}

void CheckArgument(const LayerSpec& spec, const char* name, int ranks) {
  if (const Value* value = spec.args.Find(name)) ExpectDivisible(value->as_int(), ranks, name);
}

void CheckVocabulary(const LayerSpec& spec, int ranks) {
  const int64_t size = spec.args["num_embeddings"].as_int();
  if (size % ranks == 0) return;
  throw ConfigError(Str("num_embeddings ", size, " is not divisible by model = ", ranks,
                        "; make it ", (size / ranks + 1) * ranks));
}

void CheckSplit(const LayerSpec& spec, int ranks) {
  const std::string split = SplitOf(spec);
  if (spec.type == "Linear") {
    CheckArgument(spec, split == "row" ? "in_features" : "out_features", ranks);
  } else if (spec.type == "Embedding" && split == "row") {
    CheckVocabulary(spec, ranks);
  } else if (spec.type == "Embedding") {
    CheckArgument(spec, "embedding_dim", ranks);
  } else {
    for (const char* name : {"num_heads", "num_kv_heads", "nhead", "dim_feedforward", "hidden"}) {
      CheckArgument(spec, name, ranks);
    }
  }
}

void CheckSequence(const LayerSpec& spec, const TensorSpecs& inputs, int ranks) {
  const int dim = SequenceDim(spec);
  const Value* normalized = spec.args.Find("normalized_shape");  // of a LayerNorm: the last dims
  // The inputs are sequences, followed by masks.
  const size_t sequences = spec.type == "TransformerDecoderLayer" ? 2 : 1;
  for (const TensorSpec& input : std::span(inputs).first(std::min(sequences, inputs.size()))) {
    const size_t dims = input.shape.size();
    if (dims < 3) {
      throw ConfigError(Str("split = \"sequence\" needs three dims, got ", input.ToString()));
    }
    if (normalized && dims - normalized->as_list().size() <= static_cast<size_t>(dim)) {
      throw ConfigError(Str("split = \"sequence\" shares dim ", dim, " of ", input.ToString(),
                            ", and normalized_shape ", FormatShape(spec.Ints("normalized_shape")),
                            " needs all of it"));
    }
    ExpectDivisible(input.shape[static_cast<size_t>(dim)], ranks,
                    Str("the sequence, dim ", dim, " of ", input.ToString(), ", of length"));
  }
}

bool HasSequence(const LayerSpec& spec) {
  return SplitOf(spec) == "sequence" || std::ranges::any_of(spec.children, HasSequence);
}

/// The inputs of a container's first child, if a child is split along the sequence (only then they
/// are needed). None if they are unknown: a layer that is not a container may pass anything to the
/// layers inside it.
std::optional<TensorSpecs> InputsInside(const LayerSpec& spec, const TensorSpecs* inputs) {
  const LayerType* type = spec.has_scripted_forward() ? nullptr : FindLayerType(spec.type);
  if (!inputs || !type || !type->holds_layers || !HasSequence(spec)) return std::nullopt;
  // Every part of a Residual but the first takes the Residual's input as well, before the body's
  // tensor.
  const bool takes_both = TableName(spec.type) == "Residual.part" && RangeOf(spec).begin > 0;
  return takes_both ? TensorSpecs{inputs->back()} : *inputs;
}

/// Checks a layer and the layers inside it. `inputs` is null if they are unknown. Returns true if
/// one of these layers is split.
bool CheckTree(const LayerSpec& spec, const TensorSpecs* inputs, int ranks, Script* script) {
  bool any = !SplitOf(spec).empty();
  if (any) CheckSplit(spec, ranks);
  if (any && !spec.low_rank.weights.empty()) {
    throw ConfigError("the model axis cannot share a layer that `adapt` adds low-rank parts to");
  }
  if (any && !spec.packed.weights.empty()) {
    throw ConfigError(Str("the model axis cannot share a layer whose weights adapt.base holds as ",
                          PackingName(spec.packed.packing)));
  }
  if (SplitOf(spec) == "sequence" && inputs) CheckSequence(spec, *inputs, ranks);
  std::optional<TensorSpecs> taken = InputsInside(spec, inputs);
  for (const LayerSpec& child : OwnChildren(spec)) {
    any |= CheckTree(child, taken ? &*taken : nullptr, ranks, script);
    if (taken) taken = InferLayer(child, *taken, script);
  }
  return any;
}

/// How a rank holds a tied tensor.
struct TiedPart {
  std::optional<Share> share;
  /// True if each rank has the whole tensor, but a gradient of its part of the sequence only.
  bool learns_of_part = false;
  bool operator==(const TiedPart&) const = default;
};

/// The TiedPart of each of the layer's tied tensors, in the order of its option `weight`.
std::vector<TiedPart> TiedParts(const LayerSpec& spec) {
  std::vector<TiedPart> parts;
  for (const std::string& name : spec.tied_weights) {
    for (const ParameterSpec& parameter : ParametersOf(spec)) {
      if (parameter.name != name) continue;
      const bool is_whole = !parameter.share && SplitOf(spec) == "sequence";
      parts.push_back({parameter.share, is_whole && !spec.IsFrozen(name)});
    }
  }
  return parts;
}

/// Throws ConfigError unless all uses of a tied tensor are shared in the same way, and either all
/// or none have gradients of a part of the sequence. Such gradients are summed over the ranks,
/// together with what the other uses add to them; so whole gradients would be counted several
/// times.
void CheckTies(const std::vector<LayerSpec>& layers) {
  std::map<std::string, const LayerSpec*> first;
  for (const LayerSpec& layer : layers) {
    if (layer.tied_key.empty()) continue;
    const LayerSpec& other = *first.emplace(layer.tied_key, &layer).first->second;
    if (TiedParts(layer) == TiedParts(other)) continue;
    throw ConfigError(Str(Place(layer.where), "strata.tied{\"", layer.tied_key,
                          "\"}: ", layer.ToString(), " and ", other.ToString(),
                          " must say the same split to share their tensors"));
  }
}

// Layout

/// True if the layer has this optional argument of Linear with this value.
bool Says(const LayerSpec& spec, const char* argument, bool value) {
  const Value* said = spec.scripted ? nullptr : spec.args.Find(argument);
  return said && *said == Value(value);
}

/// The dim along which a layer can give its output in parts; none = it cannot.
ShardDim Offer(const LayerSpec& spec) {
  if (spec.has_scripted_forward()) return std::nullopt;
  const std::string split = SplitOf(spec);
  if (split == "column" && !Says(spec, "gather_output", true)) return kLastDim;
  if (split == "sequence") return spec.input_shard.value_or(SequenceDim(spec));
  return std::nullopt;
}

/// True when a layer can take its input in parts along `dim`.
bool Takes(const LayerSpec& spec, int dim) {
  if (spec.has_scripted_forward()) return false;
  const std::string split = SplitOf(spec);
  if (dim == kLastDim) {
    return spec.type == "Linear" && split == "row" && !Says(spec, "input_is_parallel", false);
  }
  return split == "sequence" && (!IsTransformer(spec) || SequenceDim(spec) == dim);
}

/// Throws when a layer demands parts (gather_output, input_is_parallel) and does not get them.
void CheckDemands(const LayerSpec& layer) {
  const auto refuse = [&](const char* demand, const char* reason) {
    throw ConfigError(Str(Place(layer.where), layer.ToString(), ": ", demand, ", but ", reason,
                          "; only element-wise layers may lie between the two, and no cut"));
  };
  if (Says(layer, "gather_output", false) && !layer.output_shard) {
    refuse("gather_output = false", "the next layer is no RowParallelLinear that takes parts");
  }
  if (Says(layer, "input_is_parallel", true) && !layer.input_shard) {
    refuse("input_is_parallel = true", "the layer before is no ColumnParallelLinear in parts");
  }
}

/// Lays out the layers inside `layer`. The children of a container form a chain. It is unknown what
/// a scripted layer does between the layers inside it, so each of those is laid out alone.
void LayOutInside(LayerSpec& layer) {
  if (!layer.scripted) {
    layer.children = LayOut(layer.children, false);
    return;
  }
  for (LayerSpec& child : layer.children) child = LayOut({&child, 1}, false).front();
}

}  // namespace

void CheckSplits(const std::vector<LayerSpec>& layers, const std::vector<TensorSpecs>& inputs,
                 int ranks, Script* script) {
  CheckTies(layers);
  bool any = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    try {
      any |= CheckTree(layers[i], i < inputs.size() ? &inputs[i] : nullptr, ranks, script);
    } catch (const ConfigError& error) {
      throw ConfigError(Str(Place(layers[i].where), "layer ",
                            LayerNumber(layers, static_cast<int>(i)), " ", layers[i].ToString(),
                            ": ", error.what()));
    }
  }
  if (any) return;
  throw ConfigError(Str("parallel.model = ", ranks,
                        ", but there is no layer that its ranks could share: Transformer layers "
                        "are shared, and Linear, Embedding and MultiheadAttention where they say "
                        "split=\"column\", \"row\" or \"heads\""));
}

std::vector<LayerSpec> LayOut(std::span<const LayerSpec> layers, bool loss_takes_parts) {
  std::vector<LayerSpec> chain(layers.begin(), layers.end());
  for (size_t i = 0; i < chain.size(); ++i) {
    LayerSpec& layer = chain[i];
    LayOutInside(layer);
    layer.input_shard = i == 0 ? std::nullopt : chain[i - 1].output_shard;
    if (IsElementwise(layer)) {
      layer.output_shard = layer.input_shard;
      continue;
    }
    const ShardDim offer = Offer(layer);
    const auto next = std::find_if_not(chain.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       chain.end(), IsElementwise);
    const bool goes_on = offer && (next != chain.end() ? Takes(*next, *offer)
                                                       : loss_takes_parts && *offer == kLastDim);
    if (goes_on) layer.output_shard = offer;
    CheckDemands(layer);
  }
  return chain;
}

bool TakesParts(const LayerSpec& loss) {
  return !loss.scripted && loss.type == "CrossEntropyLoss" && loss.args["weight"].is_null() &&
         loss.args["label_smoothing"].as_double() == 0;
}

int SequenceDim(const LayerSpec& spec) {
  return IsTransformer(spec) && !spec.args["batch_first"].as_bool() ? 0 : 1;
}

}  // namespace strata
