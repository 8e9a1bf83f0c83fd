// Layer and Loss: built layers and losses, with their parameters, on the rank that runs them.
// BuildLayer() and BuildLoss() build them from their specs (layer_spec.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/layers/axis/axis_comm.h"
#include "engine/layers/layer_spec.h"

namespace strata {

using Tensors = std::vector<at::Tensor>;

struct LowRank;      // low_rank.h
class PackedWeight;  // packed_weight.h

/// A trainable or frozen tensor. The stage moves `value` into its flat parameter buffer and points
/// `grad` at the parameter's place in its flat gradient buffer, before the first forward.
struct Parameter {
  std::string name;  ///< PyTorch's name within the layer: "weight", "self_attn.in_proj_weight"
  /// A leaf of the autograd graph; requires_grad unless frozen. In half precision it is a copy of
  /// `original` in the type that the stage computes in, and its gradient has the type of
  /// `original`.
  at::Tensor value;
  /// In half precision, the tensor of which `value` is a copy; undefined if `value` is not a copy.
  /// Code that writes to `value` must write here too, because the next step copies again.
  at::Tensor original = {};
  at::Tensor grad = {};  ///< same shape; undefined for a frozen parameter
  bool frozen = false;
  /// True if the layer always computes with the original, whatever type the stage computes in, as
  /// norms do.
  bool keeps_type = false;
  /// Set when the ranks of the model axis share the parameter: which share of it `value` is.
  std::optional<Share> share = {};
  /// True when every rank has the whole parameter, but `grad` covers only its part of the sequence.
  /// Then the gradients must be summed over the model axis before they are used.
  bool partial_grad = false;
  /// True if all code that adds to `grad` first asks Pass::stale whether to overwrite it, as
  /// RowProduct and convolutions do. It must be false if a script can use the parameter directly.
  bool only_products = false;
  /// The low-rank part beside a weight of a linear operator, which ApplyLinear() adds; null if
  /// there is none.
  std::shared_ptr<const LowRank> low_rank = nullptr;
  /// A frozen weight that is held in few bits, of which ApplyLinear() makes the dense weight for
  /// each product; null if there is none. Then `value` has shape and dtype but no elements: it is
  /// on the meta device, where operators refuse it beside other tensors.
  std::shared_ptr<PackedWeight> packed = nullptr;
};

/// State without gradient (BatchNorm's running statistics).
struct LayerBuffer {
  std::string name;
  at::Tensor value;
};

/// Takes the weight gradients of one micro-batch on one stage. During the backward pass each layer
/// hands Add() a function that computes its weight gradient. The function runs at once (action B)
/// or is kept until the action W. The forward pass stores a pointer to the object in the graph, so
/// the backward pass finds it on any autograd thread. Two threads must not use it at once.
class WeightGradients {
 public:
  WeightGradients() = default;
  /// For a layer inside another: passes the functions on to `whole`. While `*at_once` is true they
  /// run at once instead, even in the action I: a weight that a script's function uses too also
  /// gets gradients from autograd, and the order of summation must not depend on the schedule.
  WeightGradients(std::shared_ptr<WeightGradients> whole, std::shared_ptr<const bool> at_once);
  void Add(std::function<void()> compute);
  /// With true, Add() keeps the functions from now on (action I). With false, the default, Add()
  /// runs them at once (action B).
  void set_deferred(bool deferred) { deferred_ = deferred; }
  /// Runs the kept functions in the order in which they came, and frees them (action W).
  void Run();
  size_t kept() const { return kept_.size(); }

 private:
  const std::shared_ptr<WeightGradients> whole_;
  const std::shared_ptr<const bool> at_once_;
  bool deferred_ = false;
  std::vector<std::function<void()>> kept_;
};

class StaleGradients;  // row_product.h

/// The options of one forward pass of one micro-batch through one layer.
struct Pass {
  bool training = true;
  /// True while a stage repeats its forward for the backward (action R). Then statistics such as
  /// BatchNorm's are not updated again.
  bool recomputing = false;
  /// Takes the weight gradients; null when no gradients are wanted (evaluation).
  std::shared_ptr<WeightGradients> weight_gradients = nullptr;
  /// The gradients that the first RowProduct of a step overwrites. Null: none.
  std::shared_ptr<StaleGradients> stale = nullptr;
};

/// Who else reads the memory of a layer's output. It decides whether the next layer may work in
/// place.
enum class OutputMemory {
  kFresh,  ///< new memory that the layer's own backward does not read
  kInput,  ///< perhaps the input itself or a view of it: Identity, Flatten, Dropout
  kKept,   ///< memory that the layer's backward reads (ReLU, Tanh, Softmax), or that may be read
};

/// A built layer. Random numbers come from the thread's generator (random.h), which the stage seeds
/// from (job seed, global micro-batch, layer) before every Forward(). A layer never uses the
/// process's default generator.
///
/// In place: Forward() must not change its inputs unless set_may_overwrite_input(true) was called;
/// AllowOverwriting() below does so. See libtorch notes, "In place as a stage's first layer".
///
/// Errors: Forward() may throw c10::Error, for instance for a token beyond an Embedding's table.
/// The stage translates it, since it knows the layer's path.
class Layer {
 public:
  virtual ~Layer() = default;
  /// Computes the outputs. Inputs and outputs are one or several tensors; dim 0 is the batch.
  virtual Tensors Forward(const Tensors& inputs, const Pass& pass) = 0;

  std::vector<Parameter>& parameters() { return parameters_; }
  std::vector<LayerBuffer>& buffers() { return buffers_; }
  /// true allows an in-place layer (ReLU{inplace=true}) to overwrite its input.
  virtual void set_may_overwrite_input(bool may) { may_overwrite_input_ = may; }
  /// Checks the values of inputs that are still in host memory, and throws ConfigError for those
  /// that the layer cannot take, such as a token beyond a table. On an accelerator the kernel
  /// itself would fail, with an error that appears only at some later call.
  virtual void CheckInput(const Tensors& inputs) const;
  /// Says whether the next layer may overwrite this layer's output.
  virtual OutputMemory output_memory() const { return OutputMemory::kKept; }
  /// Must be called after `value`, `grad` or `frozen` of a parameter, or a buffer, was replaced,
  /// and at least once before a backward pass. It makes autograd accumulate into `grad`
  /// (`value.mutable_grad()`), and passes the new tensors on to the layers inside this one. An
  /// override must call the base class's function too.
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

/// Calls set_may_overwrite_input() on every layer of a chain. A layer may overwrite its input if
/// the layer before it gives memory that is not needed elsewhere. The first layer may do so only
/// with `first_may`: a stage's input is a received leaf, the data itself, or kept for
/// recomputation.
void AllowOverwriting(std::span<Layer* const> chain, bool first_may = false);

/// The loss of one micro-batch. The engine sums both fields over the global batch. It runs the
/// backward pass of `sum` undivided, and divides the gradients once by LossDivisor(total weight).
struct LossValue {
  at::Tensor sum;     ///< scalar, differentiable: the sum of the per-item losses
  double weight = 0;  ///< the mean is sum / weight: the number of items, or the sum of their class
                      ///< weights; 0 for reduction="sum"
  /// On an accelerator: a double scalar to add to `weight`, so that the host does not wait for the
  /// accelerator in every micro-batch. Otherwise undefined.
  at::Tensor device_weight = {};
};

/// The divisor for a total weight. For 0 it is 1: reduction="sum" stays a sum, and a batch whose
/// labels are all ignored has loss 0 (PyTorch: not-a-number).
inline double LossDivisor(double weight) { return weight == 0 ? 1 : weight; }

/// Counts for the accuracy, which is correct / counted over all micro-batches.
struct Hits {
  int64_t correct = 0;
  int64_t counted = 0;  ///< labels, without ignored ones
  /// On an accelerator: two int64 numbers to add to `correct` and `counted`. Otherwise undefined.
  at::Tensor on_device = {};
};

/// A built loss.
class Loss {
 public:
  virtual ~Loss() = default;
  /// The loss of one micro-batch. Throws ConfigError when output and target do not fit each other.
  virtual LossValue Compute(const Tensors& output, const Tensors& target) = 0;
  /// Checks the values of a target that is still in host memory. Throws ConfigError for labels that
  /// an output of the sizes `output` has no class for; see Layer::CheckInput().
  virtual void CheckTarget(const Tensors& target, at::IntArrayRef output) const;
  /// For the metric "accuracy": counts the labels that equal the class with the greatest score
  /// (losses.h says which dim holds the classes). Throws ConfigError when the targets are no
  /// labels.
  virtual Hits CountHits(const Tensors& output, const Tensors& target);
  /// The whole output. When each rank of the model axis has a part, this is a collective that joins
  /// the parts; otherwise it returns `output`.
  virtual Tensors WholeOutput(const Tensors& output) { return output; }
};

/// Builds layers and losses that are written in a script. The package lua/ implements it.
class LayerScript {
 public:
  virtual ~LayerScript() = default;
  virtual std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec) = 0;
  virtual std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec) = 0;
  /// A layer with the parameters of `layer`, whose Forward() is the script's spec.tied_forward.
  virtual std::unique_ptr<Layer> WithForward(const LayerSpec& spec,
                                             std::unique_ptr<Layer> layer) = 0;
};

/// Builds a layer on the CPU with PyTorch's initial values. They are drawn from the thread's
/// generator (random.h) in PyTorch's order: under RandomScope(s) they have the bits of PyTorch's
/// module after torch.manual_seed(s). `script` may be null when nothing in `spec` is scripted.
/// The spec must be complete and checked (MakeLayer()); a type or value that is in no table aborts
/// the program.
///
/// `axis`: null, or a model axis of several ranks. In the latter case the spec must have gone
/// through CheckSplits() and LayOut() (engine/layers/split.h). The layer draws the values of
/// the whole layer and keeps this rank's share of them.
std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script,
                                  std::shared_ptr<AxisComm> axis = nullptr);
/// Builds a loss. `script` and `axis` as in BuildLayer().
std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script,
                                std::shared_ptr<AxisComm> axis = nullptr);

}  // namespace strata
