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

/// What the backward of a layer that is one call of ATen's reads. Costs follow from it, and whether
/// the next layer may overwrite the output.
enum class Keeps {
  kNothing,  ///< nothing: the output is the input, or a view of it
  kInput,
  kOutput,
  kEither,  ///< the output where the layer works in place (`inplace = true`), else the input
};

/// All that is known about a type of layer or loss before one is built.
struct LayerType {
  std::string name;   ///< "Conv2d"
  FieldTable fields;  ///< PyTorch's names, order and defaults; our own additions are named only
  std::string help;   ///< one line
  /// For people: "(N, in_channels, H, W) -> (N, out_channels, H', W')". The name of a field stands
  /// for its value, other names stand for any size, `...` stands for any number of dims.
  std::string shapes = {};
  std::string library = "nn";  ///< where scripts find it: "nn", or "strata" (strata.skip)
  bool is_loss = false;
  bool holds_layers = false;  ///< Sequential, Residual: their arguments are layers
  bool gives_states = false;  ///< LSTM: its outputs are a sequence and states
  /// True when each output element depends on the input element at its place only. Such a layer can
  /// work on any part of a tensor.
  bool elementwise = false;
  Keeps keeps = Keeps::kInput;  ///< of a layer that is one call
  /// The values of its argument `split`: how the model axis can share the layer (split.h).
  std::vector<std::string> splits = {};
  std::string default_split = {};  ///< "" = not split
  /// For another name of a type, with a split of its own: the type. A ColumnParallelLinear becomes
  /// a Linear when it is declared. Its fields are some of the Linear's.
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

  /// See MayDraw(). Empty = where its argument `dropout` is above 0.
  std::function<bool(const LayerSpec&)> draws = {};
  /// See UnorderedOnGpu(). Empty = its gradient has one order.
  std::function<bool(const LayerSpec&)> unordered_on_gpu = {};

  // While texts are written, token by token (engine/runtime):
  /// Elements of the keys and values that the layer keeps of each token, without those of layers
  /// inside it. Ranks that share its heads have equal parts. Empty = it keeps none.
  std::function<int64_t(const LayerSpec&)> kept_of_token = {};
  /// How often the layers inside it stand. Empty = once.
  std::function<int64_t(const LayerSpec&)> repeats = {};
  /// See IsTokenWise(). Empty = where it is elementwise.
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
/// LayerType::keeps of a layer that is one call. Gives kInput or kOutput for kEither.
Keeps KeepsOf(const LayerSpec& spec);
/// All of them: of nn, of strata, and losses.
const std::vector<LayerType>& LayerTypes();
/// All names of nn, in the order of the table; losses last.
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
/// Of these, those that do not learn.
int64_t CountFrozen(const LayerSpec& spec);

/// Whether the layer's forward in training may draw random numbers: its own, or that of a layer
/// inside it. What a script computes may.
bool MayDraw(const LayerSpec& spec);

/// The type, the layer's or that of one inside it, whose gradient LibTorch 2.11 adds up on a GPU in
/// the order in which blocks happen to end, so that two runs differ in the last bits; "" = none.
/// Each was seen to differ within twelve passes on an H100, and no other of nn was. What a script
/// computes is not looked at.
std::string_view UnorderedOnGpu(const LayerSpec& spec);

/// Whether the layer's forward in training writes to its parameter, or that of a layer inside it:
/// an Embedding's with max_norm. Such a forward must not run again.
bool HasMaxNorm(const LayerSpec& spec);

/// Whether the layer, of one tensor (N, T, ...), is known to give the same for the T tokens one by
/// one, with the keys and values of those before, as for all of them at once. Of other layers, the
/// script's among them, nobody knows before they are tried.
bool IsTokenWise(const LayerSpec& spec);
/// Bytes of the keys and values that the layer, and those inside it, keep of each token of a text
/// that is written, on one of `ranks` of the model axis. `type`: of the numbers, where the layer
/// has none of its own.
int64_t KeptTokenBytes(const LayerSpec& spec, int64_t ranks, DType type);

/// The layer's path in checkpoints and messages: its name, or `index` as text if it has none.
std::string LayerPath(const LayerSpec& spec, int index);

/// The shapes of the layer's outputs. Dim 0 of inputs and outputs is the batch. `script` may be
/// null when no layer is scripted. Throws ShapeError.
TensorSpecs InferLayer(const LayerSpec& spec, const TensorSpecs& inputs, Script* script);

/// The shapes of the outputs of all layers in a list, of which each takes the outputs of the one
/// before. For a strata.skip only the outputs along the chain are listed; a strata.join also takes
/// the kept tensors. Throws ConfigError that names both layers: "net.lua:7: layer 3 Linear(64, 10)
/// cannot take the output of layer 2 Flatten(): expects last dim 64, got (8, 128)". `compute`: what
/// float32 outputs are in half precision, of which the layers' rules know nothing.
std::vector<TensorSpecs> InferLayers(const std::vector<LayerSpec>& layers,
                                     const TensorSpecs& inputs, Script* script,
                                     DType compute = DType::kFloat32);

/// The specs, those of the type `from` as `to`.
TensorSpecs WithType(TensorSpecs specs, DType from, DType to);

/// Throws ConfigError that names the loss and the last layer if the loss cannot take this output
/// and target. A scripted loss takes anything.
void CheckLoss(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
               const TensorSpecs& output, const TensorSpec& target);

/// {shape, dtype}; a list of them.
Value ToValue(const TensorSpec& spec);
Value ToValue(const TensorSpecs& specs);

}  // namespace strata
