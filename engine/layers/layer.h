// Layer: a built layer, with its parameters, on the rank that owns it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/layers/axis_comm.h"
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
  /// What `value` is of the whole parameter, when the ranks of the model axis share it.
  std::optional<Share> share = {};
  /// The whole parameter is here, but `grad` covers this rank's part of the sequence only: the
  /// ranks of the model axis must sum it before anybody uses it.
  bool partial_grad = false;
};

/// State without gradient (BatchNorm's running statistics).
struct LayerBuffer {
  std::string name;
  at::Tensor value;
};

/// Takes the weight gradients of one micro-batch on one stage. A layer hands its computation to
/// Add() during the backward pass; it runs at once (action B) or is kept until the action W.
/// One object per stage and micro-batch; the forward pass captures it, so that the backward finds
/// it on whatever thread autograd uses. Not for two threads at once.
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

class JoinedProducts;  // row_product.h

/// One forward pass of one micro-batch through one layer.
struct Pass {
  bool training = true;
  /// Set while a stage runs its forward again for the backward (action R): statistics such as
  /// BatchNorm's must not be counted twice.
  bool recomputing = false;
  /// Where weight gradients go; null when no gradient is wanted (evaluation).
  std::shared_ptr<WeightGradients> weight_gradients = nullptr;
  /// Where weight gradients that are products of rows wait for those of other micro-batches (they
  /// go there when `weight_gradients` runs them); null: they do not.
  std::shared_ptr<JoinedProducts> joined = nullptr;
};

/// What a layer's output is made of: whether the layer after it may work in place.
enum class OutputMemory {
  kFresh,  ///< new memory that the layer's own backward does not read
  kInput,  ///< (perhaps) the input itself or a view of it: Identity, Flatten, Dropout
  kKept,   ///< the backward reads it (ReLU, Tanh, Softmax), or nothing is known of it
};

/// A built layer. Random numbers come from the thread's generator (random.h), which the stage
/// seeds from (job seed, global micro-batch, layer) before every Forward; a layer never asks for
/// the default generator.
///
/// In place: `Forward` must not change its inputs unless `may_overwrite_input` was set, by
/// AllowOverwriting() below, see libtorch notes "In place as a stage's first layer".
///
/// Errors: Forward may throw c10::Error (a token beyond an Embedding's table); the stage, which
/// knows where the layer stands, translates it.
class Layer {
 public:
  virtual ~Layer() = default;
  /// One or several tensors in, one or several out; dim 0 is the batch.
  virtual Tensors Forward(const Tensors& inputs, const Pass& pass) = 0;

  std::vector<Parameter>& parameters() { return parameters_; }
  std::vector<LayerBuffer>& buffers() { return buffers_; }
  /// Allows in-place layers (ReLU{inplace=true}) to overwrite what the layer before gave.
  virtual void set_may_overwrite_input(bool may) { may_overwrite_input_ = may; }
  virtual OutputMemory output_memory() const { return OutputMemory::kKept; }
  /// To be called after `value`, `grad` or `frozen` of the parameters, or a buffer, were replaced;
  /// at least once before a backward pass. Makes `grad` the place where autograd accumulates
  /// (`value.mutable_grad()`), and hands everything on to the layers inside this one. Who
  /// overrides it calls it too.
  virtual void OnBound();

 protected:
  /// Adds a trainable parameter.
  void AddParameter(std::string name, const at::Tensor& value);
  /// The parameter at `index`, or null when there is none (bias=false).
  const Parameter* OptionalParameter(size_t index) const;

  bool may_overwrite_input_ = false;
  std::vector<Parameter> parameters_;
  std::vector<LayerBuffer> buffers_;
};

/// Tells every layer of a chain whether it may overwrite its input: where the layer before gives
/// memory that nobody else needs. The first layer may not, unless `first_may`: a stage's input is
/// a received leaf, the data itself, or kept for recomputation.
void AllowOverwriting(std::span<Layer* const> chain, bool first_may = false);

/// What a loss gives for one micro-batch. The engine sums both over the global batch, sends `sum`
/// backward as it is and divides the gradients once by LossDivisor(total weight).
struct LossValue {
  at::Tensor sum;     ///< scalar, differentiable: the sum of the per-item losses
  double weight = 0;  ///< what the sum is divided by for the mean: items, or their class weights;
                      ///< 0 for reduction="sum"
};

/// A total weight of 0 divides by 1: reduction="sum" stays a sum, and a batch in which every label
/// is ignored has loss 0 (PyTorch: not-a-number).
inline double LossDivisor(double weight) { return weight == 0 ? 1 : weight; }

/// How many labels were met: accuracy = correct / counted, over all micro-batches.
struct Hits {
  int64_t correct = 0;
  int64_t counted = 0;  ///< labels, without ignored ones
};

class Loss {
 public:
  virtual ~Loss() = default;
  /// Throws ConfigError where output and target do not fit each other.
  virtual LossValue Compute(const Tensors& output, const Tensors& target) = 0;
  /// For the metric "accuracy": the greatest score of the class dim (losses.h says which one)
  /// against the label. Throws ConfigError where the targets are no labels.
  virtual Hits CountHits(const Tensors& output, const Tensors& target);
  /// The whole output, where the ranks of the model axis give Compute() a part each (collective);
  /// else the output itself.
  virtual Tensors WholeOutput(const Tensors& output) { return output; }
};

/// Builds scripted layers and losses; implemented by lua/.
class LayerScript {
 public:
  virtual ~LayerScript() = default;
  virtual std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec) = 0;
  virtual std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec) = 0;
  /// The parameters of `layer` with spec.tied_forward as their forward.
  virtual std::unique_ptr<Layer> WithForward(const LayerSpec& spec,
                                             std::unique_ptr<Layer> layer) = 0;
};

/// Builds a layer with PyTorch's initial values, drawn from the thread's generator (random.h), on
/// the CPU in PyTorch's order of draws: under RandomScope(s) they are the bits that PyTorch's
/// module has after torch.manual_seed(s). `script` may be null when nothing in `spec` is scripted.
/// The spec is complete and checked (MakeLayer); a type or value that no table knows is a broken
/// invariant.
///
/// `axis`: the model axis; null, or of several ranks. Then the spec has gone through CheckSplits()
/// and LayOut() (engine/spec/split.h). The layer keeps this rank's share of the values that the
/// whole layer would start with, and draws what the whole layer would draw.
std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script,
                                  std::shared_ptr<AxisComm> axis = nullptr);
std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script,
                                std::shared_ptr<AxisComm> axis = nullptr);

}  // namespace strata
