// FlatParameters: where the parameters of a stage and their gradients lie in memory.
//
//   group 0 values     | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//   group 0 gradients  | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//
// One buffer of values and one of gradients per optimizer group and dtype, so that one call of a
// fused optimizer updates all of it, and weight gradients are accumulated where they stay. Every
// parameter starts at a multiple of kPadding elements: the bits of the update depend on a
// parameter's place in the vector loop, and must not depend on the cut (libtorch notes, "Fused
// optimizers"). The padding is zero and stays zero under every optimizer.
//
// Where layers compute in another type than the parameters have (half precision), each buffer has a
// copy in that type, made once per run, and the layers see views of the copy. Their gradients are
// added up in the parameters' type. Norms, and all layers where the types are one, see the
// parameters themselves.
//
//   group 0 copy       | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//
// Of a parameter that several layers of the stage share, only the first has a place; the others are
// views of its value with gradients of their own, outside the buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/layers/kernels/row_product.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// What one optimizer call works on.
struct FlatBuffer {
  int group = -1;        ///< as FindParameterGroup() counts
  at::Tensor values;     ///< one dim
  at::Tensor gradients;  ///< of the same size and dtype
};

/// One parameter of the stage where it lies.
struct PlacedParameter {
  int layer = 0;
  std::string path;     ///< "3.weight"
  at::Tensor value;     ///< a view of a flat buffer unless frozen
  at::Tensor leaf;      ///< what the layer sees: the value, or its copy
  at::Tensor gradient;  ///< undefined for a frozen parameter
  int buffer = -1;      ///< whose views both are; -1 for a frozen one and a tied one's later use
  int64_t offset = 0;   ///< its first element there
  std::string tie;      ///< TieName(); "" = not tied
  bool counted = true;  ///< false for a copy of another stage's or layer's parameter
  std::optional<Share> share = {};  ///< what the rank has of the whole, see Parameter
  bool partial_grad = false;        ///< see Parameter
};

/// The types of a stage's parameters. Layers that keep theirs (Parameter::keeps_type) have neither.
struct ParameterTypes {
  at::ScalarType stored = at::kFloat;   ///< also of the gradients
  at::ScalarType compute = at::kFloat;  ///< that layers see; another one than `stored` = copies
};

/// The optimizer group of a layer's parameter.
using GroupOf = std::function<int(int layer, const std::string& parameter)>;

class FlatParameters {
 public:
  /// Elements; 64 bytes of fp32.
  static constexpr int64_t kPadding = 16;
  /// Elements. Smaller gradients are made zero with what lies around them, which costs less than to
  /// keep account of each.
  static constexpr int64_t kLeastStale = 1 << 14;

  /// Moves every parameter and buffer of the layers to `device`, trainable parameters into flat
  /// buffers, points the layers at them or at their copies, and calls their OnBound().
  FlatParameters(std::vector<StageLayer>& layers, const GroupOf& group_of, at::Device device,
                 const ParameterTypes& types = {});

  /// In the order of layers.
  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  const std::vector<FlatBuffer>& buffers() const { return buffers_; }
  /// The floating-point state of the layers that is no parameter, in their order.
  const std::vector<at::Tensor>& state() const { return state_; }
  /// Makes the gradients zero, or stale where what comes first overwrites them.
  void ClearGradients();
  /// Makes zero what is still stale of the layers from `layer` on. It must come between their last
  /// product and whoever reads their gradients.
  void FinishGradients(int layer = 0);
  const std::shared_ptr<StaleGradients>& stale() const { return stale_; }
  /// Makes the copies that layers compute with anew. It must come between a change of values,
  /// whoever makes it, and the next forward.
  void RefreshCopies();

 private:
  struct Copy {
    at::Tensor original;
    at::Tensor copy;
  };
  /// A gradient that who adds to it may overwrite (Parameter::only_products).
  struct Product {
    int layer;
    at::Tensor gradient;
  };
  void AddGradients(std::vector<StageLayer>& layers);
  /// What layers see of `original`, which they compute with in `type`.
  at::Tensor InType(const at::Tensor& original, at::ScalarType type);
  void ShareFirstUse(Parameter& parameter, PlacedParameter& placed);

  std::vector<PlacedParameter> parameters_;
  std::vector<FlatBuffer> buffers_;
  std::vector<at::Tensor> state_;
  std::vector<at::Tensor> added_;  // what must be zero when a step begins
  std::vector<Product> products_;  // what the first product of a step overwrites
  std::shared_ptr<StaleGradients> stale_ = std::make_shared<StaleGradients>();
  std::vector<Copy> copies_;  // of flat buffers, and of frozen parameters
};

}  // namespace strata
