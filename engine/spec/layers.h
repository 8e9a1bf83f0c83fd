// Layers as declarations: arguments, parameters and shapes of every layer and loss, without torch.
// engine/layers builds them. A new layer is one file in engine/spec/layers/ and one in
// engine/layers/, and a line in the table of each.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/spec/fields.h"
#include "engine/spec/layer_spec.h"
#include "engine/spec/script.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// Everything that is known of a layer or a loss before one is built.
struct LayerType {
  std::string name;   ///< "Conv2d"
  FieldTable fields;  ///< PyTorch's names, order and defaults; our own additions are named only
  std::string help;   ///< one line
  /// For people: "(N, in_channels, H, W) -> (N, out_channels, H', W')". A name that is a field's
  /// stands for its value, any other for any size, `...` for any number of dims.
  std::string shapes = {};
  std::string library = "nn";  ///< where scripts find it: "nn", or "strata" (strata.skip)
  bool is_loss = false;
  bool holds_layers = false;  ///< Sequential, Residual: takes layers, not values
  /// Works on each element by itself, so that it takes any part of a tensor.
  bool elementwise = false;
  /// How the model axis can share the layer (split.h): the values of its argument `split`.
  std::vector<std::string> splits = {};
  std::string default_split = {};  ///< "" = it is not split
  /// The type that this one is another name for, with a split of its own: a ColumnParallelLinear
  /// becomes a Linear as soon as it is declared. Its fields are some of that one's.
  std::string stands_for = {};

  /// What no single field can tell: checks ("in_channels must be divisible by groups") and
  /// completes (stride = kernel_size). Throws ConfigError with the bare reason; MakeLayer adds
  /// place and layer. May be empty.
  std::function<void(LayerSpec&)> finish = {};
  /// Parameters and buffers, in the order of PyTorch's state_dict; empty = none.
  std::function<std::vector<ParameterSpec>(const LayerSpec&)> parameters = {};
  /// Output shapes from input shapes, batch included; a loss takes {output, target} and gives one
  /// scalar. Throws ShapeError. Only layers that hold others use the script.
  std::function<TensorSpecs(const LayerSpec&, const TensorSpecs&, Script*)> infer = {};
};

/// A layer cannot take its input; the text says what it expects and what it got ("expects last dim
/// 64, got (8, 128)") and leaves it to the caller to name the layers.
class ShapeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The type of that exact name, or null; also of those outside nn.
const LayerType* FindLayerType(std::string_view name);
/// All of them: of nn, of strata, and losses.
const std::vector<LayerType>& LayerTypes();
/// All names of nn, in the order of the table; losses last.
std::vector<std::string> LayerTypeNames();
/// For `help(nn.Conv2d)`: the call, the line of help and the fields.
std::string LayerHelp(const LayerType& type);

/// Checks a constructor's call and completes it. Every layer also takes `name="..."`. `children`:
/// the layers given to a Sequential or Residual. Throws ConfigError (see Canonicalize), also for an
/// unknown type, with the nearest one.
LayerSpec MakeLayer(std::string_view type, const Value::List& positional, const Value::Map& named,
                    std::vector<LayerSpec> children, const std::string& where);

/// Parameters and buffers in state_dict's order and with its names ("0.weight" inside a
/// Sequential); a scripted layer's are those that its init declared.
std::vector<ParameterSpec> ParametersOf(const LayerSpec& spec);
/// How the ranks of the model axis share the layer: "column", "row", "heads", "sequence" (split.h);
/// "" = each of them has the whole layer.
std::string SplitOf(const LayerSpec& spec);
/// Elements of the parameters, buffers not counted.
int64_t CountParameters(const LayerSpec& spec);

/// The layer's name, or `index` as text: its path in checkpoints and messages.
std::string LayerPath(const LayerSpec& spec, int index);

/// The layer's outputs, dim 0 being the batch in both. Throws ShapeError. `script` may be null when
/// no layer is scripted.
TensorSpecs InferLayer(const LayerSpec& spec, const TensorSpecs& inputs, Script* script);

/// The outputs of each layer of a list, one after the other; of strata.skip what goes along the
/// chain; strata.join is given what was kept. Throws ConfigError that names both
/// layers: "net.lua:7: layer 3 Linear(64, 10) cannot take the output of layer 2 Flatten(): expects
/// last dim 64, got (8, 128)".
std::vector<TensorSpecs> InferLayers(const std::vector<LayerSpec>& layers,
                                     const TensorSpecs& inputs, Script* script);

/// Throws ConfigError that names the loss and the last layer unless the loss can compare these. A
/// scripted loss takes anything.
void CheckLoss(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
               const TensorSpecs& output, const TensorSpec& target);

/// "float32 (8, 128)"; several are joined by " and ".
std::string ToString(const TensorSpecs& specs);

}  // namespace strata
