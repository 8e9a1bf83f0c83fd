// Layers as declarations: the arguments, parameters, shapes and costs of every layer and loss,
// without torch. engine/layers builds them. A layer is an entry in its family's file
// FAMILY_spec.cc, and an entry in the file FAMILY.cc beside it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/script.h"

namespace strata {

struct Traced;    // layers/layer_tape.h
class LayerTape;  // layers/layer_tape.h

/// Which tensor the backward reads, for a layer that is a single call of ATen. It determines the
/// layer's cost and whether the next layer may overwrite its output.
enum class Keeps {
  kNothing,  ///< nothing: the output is the input, or a view of it
  kInput,
  kOutput,
  kEither,  ///< the output where the layer works in place (`inplace = true`), else the input
};

/// The declaration of a type of layer or loss: everything that is known without building one.
struct LayerType {
  std::string name;   ///< "Conv2d"
  FieldTable fields;  ///< PyTorch's names, order and defaults; our own additions are named only
  std::string help;   ///< one line
  /// For people: "(N, in_channels, H, W) -> (N, out_channels, H', W')". The name of a field stands
  /// for its value, other names stand for any size, `...` stands for any number of dims.
  std::string shapes = {};
  std::string library = "nn";  ///< the Lua table that has it: "nn", or "strata" (strata.skip)
  bool is_loss = false;
  bool holds_layers = false;  ///< Sequential, Residual: their arguments are layers
  /// True if it multiplies by each of its matrices with ApplyLinear() (linear.h), so that they can
  /// have low-rank parts (LowRankSpec).
  bool multiplies_linear = false;
  bool gives_states = false;  ///< LSTM: its outputs are a sequence and states
  /// True when each output element depends on the input element at its place only. Such a layer can
  /// work on any part of a tensor.
  bool elementwise = false;
  Keeps keeps = Keeps::kInput;  ///< for a layer that is one call of ATen
  /// The values of its argument `split`: how the model axis can share the layer (split.h).
  std::vector<std::string> splits = {};
  std::string default_split = {};  ///< "" = not split
  /// Set if this type is only another name with a fixed split: the name of the actual type.
  /// MakeLayer() turns a ColumnParallelLinear into a Linear. The fields are a subset of the actual
  /// type's fields.
  std::string stands_for = {};

  /// Checks and completes what depends on several fields ("in_channels must be divisible by
  /// groups"; stride = kernel_size). Throws ConfigError with the reason only; MakeLayer() adds
  /// place and layer. May be empty.
  std::function<void(LayerSpec&)> finish = {};
  /// Parameters and buffers, in the order of PyTorch's state_dict; empty = none.
  std::function<std::vector<ParameterSpec>(const LayerSpec&)> parameters = {};
  /// The output shapes for these input shapes, which include the batch. A loss takes {output,
  /// target} and gives one scalar. Throws ShapeError. Only layers that hold layers use the script.
  std::function<TensorSpecs(const LayerSpec&, const TensorSpecs&, Script*)> infer = {};
  /// The cost rule: writes what the passes do and keep on the tape, and returns the outputs, whose
  /// shapes are given. layers/cost_rules.h has the common patterns.
  std::function<std::vector<Traced>(LayerTape&, const LayerSpec&, const std::vector<Traced>& inputs,
                                    const TensorSpecs& outputs)>
      cost = {};

  /// See MayDraw(). Empty = it draws if its argument `dropout` is above 0.
  std::function<bool(const LayerSpec&)> draws = {};
  /// See UnorderedOnGpu(). Empty = the gradient is always summed in one order.
  std::function<bool(const LayerSpec&)> unordered_on_gpu = {};

  // For generating texts token by token (engine/runtime):
  /// The number of elements of keys and values that the layer keeps per token, without those of the
  /// layers inside it. Ranks that share the heads have equal parts. Empty = 0.
  std::function<int64_t(const LayerSpec&)> kept_of_token = {};
  /// How many copies of the layers inside it there are (num_layers of a stack). Empty = 1.
  std::function<int64_t(const LayerSpec&)> repeats = {};
  /// See IsTokenWise(). Empty = it is if it is elementwise.
  std::function<bool(const LayerSpec&)> is_token_wise = {};
};

/// A layer cannot take its input. The text only says what it expects and what it got ("expects last
/// dim 64, got (8, 128)"); the caller names the layers.
class ShapeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The type of this exact name, also outside nn; null when there is none.
const LayerType* FindLayerType(std::string_view name);
/// LayerType::keeps of this layer, with kEither resolved to kInput or kOutput.
Keeps KeepsOf(const LayerSpec& spec);
/// All types of layers and losses, those of nn and those of strata.
const std::vector<LayerType>& LayerTypes();
/// The names of all types of nn, in the order of the table, with the losses last.
std::vector<std::string> LayerTypeNames();
/// The text of `help(nn.Conv2d)`: the call, the line of help and the fields.
std::string LayerHelp(const LayerType& type);

/// Checks a constructor's call and completes it. Every layer also takes `name="..."`. `children`
/// are the layers given to a Sequential or Residual. Throws ConfigError as Canonicalize() does, and
/// for an unknown type with the nearest name.
LayerSpec MakeLayer(std::string_view type, const Value::List& positional, const Value::Map& named,
                    std::vector<LayerSpec> children, const std::string& where);

/// Parameters and buffers with the order and the names of PyTorch's state_dict ("0.weight" inside a
/// Sequential). A scripted layer has those that its init declared.
std::vector<ParameterSpec> ParametersOf(const LayerSpec& spec);
/// How the ranks of the model axis share the layer: "column", "row", "heads" or "sequence"
/// (split.h); "" = each rank has the whole layer.
std::string SplitOf(const LayerSpec& spec);
/// The number of elements of all parameters, without buffers.
int64_t CountParameters(const LayerSpec& spec);
/// The number of elements of the frozen parameters.
int64_t CountFrozen(const LayerSpec& spec);

/// True if the forward of the layer, or of a layer inside it, may draw random numbers in training.
/// Always true for a forward that a script computes.
bool MayDraw(const LayerSpec& spec);

/// The name of the first type, the layer's own or that of a layer inside it, whose gradient
/// LibTorch 2.11 sums on a GPU in no fixed order (atomic additions), so that two runs differ in the
/// last bits; "" = none. Each such type was seen to differ within twelve passes on an H100, and no
/// other type of nn was. Scripted forwards are not examined.
std::string_view UnorderedOnGpu(const LayerSpec& spec);

/// True if the forward of the layer, or of a layer inside it, writes to a parameter: an Embedding
/// with max_norm. Such a forward must not be recomputed.
bool HasMaxNorm(const LayerSpec& spec);

/// True if the layer takes one tensor (N, T, ...) and is known to give the same result for the T
/// tokens one by one, with the kept keys and values of earlier tokens, as for all of them at once.
/// False means unknown, as for all scripted layers: only a trial can tell.
bool IsTokenWise(const LayerSpec& spec);
/// The bytes of keys and values that the layer, and the layers inside it, keep per token of a text
/// that is generated, on one of `ranks` ranks of the model axis. `type` is the type of the numbers
/// if the layer has no `dtype` of its own.
int64_t KeptTokenBytes(const LayerSpec& spec, int64_t ranks, DType type);

/// The paths, within the layer, at which its child with this index stands: {"body"}, or in a stack
/// one for each copy: {"layers.0", "layers.1"}.
std::vector<std::string> ChildPaths(const LayerSpec& spec, int child);

/// The layer's path in checkpoints and messages: its name, or `index` as text if it has none.
std::string LayerPath(const LayerSpec& spec, int index);

/// The shapes of the layer's outputs. Dim 0 of inputs and outputs is the batch. `script` may be
/// null when no layer is scripted. Throws ShapeError.
TensorSpecs InferLayer(const LayerSpec& spec, const TensorSpecs& inputs, Script* script);

/// The shapes of the outputs of all layers in a list, of which each takes the outputs of the one
/// before. For a strata.skip only the outputs along the chain are listed; a strata.join also takes
/// the kept tensors. Throws ConfigError that names both layers: "net.lua:7: layer 3 Linear(64, 10)
/// cannot take the output of layer 2 Flatten(): expects last dim 64, got (8, 128)". The layers'
/// rules work with float32; float32 outputs are listed with the type `compute` (half precision).
std::vector<TensorSpecs> InferLayers(const std::vector<LayerSpec>& layers,
                                     const TensorSpecs& inputs, Script* script,
                                     DType compute = DType::kFloat32);

/// The specs with the dtype `from` replaced by `to`.
TensorSpecs WithType(TensorSpecs specs, DType from, DType to);

/// Throws ConfigError that names the loss and the last layer if the loss cannot take this output
/// and target. A scripted loss takes anything.
void CheckLoss(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
               const TensorSpecs& output, const TensorSpec& target);

/// The spec as a map {shape, dtype}, and several as a list of such maps.
Value ToValue(const TensorSpec& spec);
Value ToValue(const TensorSpecs& specs);

}  // namespace strata
