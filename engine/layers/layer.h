// Layer: a built layer, with its parameters, on the rank that owns it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/spec/layer_spec.h"

namespace strata {

using Tensors = std::vector<at::Tensor>;

/// A trainable or frozen tensor. The stage moves `value` into its flat parameter buffer and points
/// `grad` at the parameter's place in its flat gradient buffer, before the first forward.
struct Parameter {
  std::string name;  ///< within the layer, PyTorch's: "weight", "self_attn.in_proj_weight"
  at::Tensor value;  ///< a leaf; requires_grad unless frozen
  at::Tensor grad;   ///< same shape; undefined for a frozen parameter
  bool frozen = false;
};

/// State without gradient (BatchNorm's running statistics).
struct LayerBuffer {
  std::string name;
  at::Tensor value;
};

/// Takes the weight gradients of one micro-batch on one stage. A layer hands its computation to
/// Add() during the backward pass; it runs at once (action B) or is kept until the action W.
/// One object per stage and micro-batch; the forward pass captures it, so that the backward finds
/// it on whatever thread autograd uses.
class WeightGradients {
 public:
  void Add(std::function<void()> compute);
  /// From now on Add() keeps (true: action I) or runs at once (false: action B, the default).
  void set_deferred(bool deferred) { deferred_ = deferred; }
  /// Runs what was kept, in the order in which it came, and frees it (action W).
  void Run();
  size_t kept() const { return kept_.size(); }

 private:
  bool deferred_ = false;
  std::vector<std::function<void()>> kept_;
};

/// One forward pass of one micro-batch through one layer.
struct Pass {
  bool training = true;
  /// Set while a stage runs its forward again for the backward (action R): statistics such as
  /// BatchNorm's must not be counted twice.
  bool recomputing = false;
  /// Where weight gradients go; null when no gradient is wanted (evaluation).
  std::shared_ptr<WeightGradients> weight_gradients;
};

/// A built layer. Random numbers come from the thread's generator (random.h), which the stage
/// seeds from (job seed, global micro-batch, layer) before every Forward; a layer never asks for
/// the default generator.
///
/// In place: `Forward` must not change its inputs unless `may_overwrite_input` was set (by the
/// stage, never for its first layer), see libtorch notes "In place as a stage's first layer".
class Layer {
 public:
  virtual ~Layer() = default;
  /// One or several tensors in, one or several out; dim 0 is the batch.
  virtual Tensors Forward(const Tensors& inputs, const Pass& pass) = 0;

  std::vector<Parameter>& parameters() { return parameters_; }
  std::vector<LayerBuffer>& buffers() { return buffers_; }
  /// Allows in-place layers (ReLU{inplace=true}) to overwrite what the layer before gave.
  virtual void set_may_overwrite_input(bool may) { may_overwrite_input_ = may; }
  /// Called once after `value` and `grad` of the parameters were moved into the flat buffers.
  virtual void OnBound() {}

 protected:
  bool may_overwrite_input_ = false;
  std::vector<Parameter> parameters_;
  std::vector<LayerBuffer> buffers_;
};

/// What a loss gives for one micro-batch. The engine sums both over the global batch, sends `sum`
/// backward as it is and divides the gradients once by the total weight.
struct LossValue {
  at::Tensor sum;     ///< scalar, differentiable: the sum of the per-item losses
  double weight = 0;  ///< what the sum is divided by for the mean: items, or their class weights
};

class Loss {
 public:
  virtual ~Loss() = default;
  virtual LossValue Compute(const Tensors& output, const Tensors& target) = 0;
};

/// Builds scripted layers and losses; implemented by lua/.
class LayerScript {
 public:
  virtual ~LayerScript() = default;
  virtual std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec) = 0;
  virtual std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec) = 0;
};

/// Builds a layer with PyTorch's initial values, drawn from the thread's generator (random.h), on
/// the CPU in PyTorch's order of draws. `script` may be null when `spec` is not scripted.
std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script);

}  // namespace strata
