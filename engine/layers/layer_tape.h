// LayerTape: records which tensors a layer's forward pass makes, the work on them, and which of
// them the backward needs. The cost rule of the layer's type (LayerType::cost) writes the record,
// and Finish() turns it into a LayerCost. No tensor is computed.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer_cost.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/script.h"

namespace strata {

/// A tensor of the recorded pass. Views of the same memory have the same `storage`.
struct Traced {
  TensorSpec spec;  ///< shape and dtype of the whole tensor
  int storage = -1;
  int parts = 1;  ///< number of equal parts of the tensor, of which this rank has one
  DType compute = DType::kFloat32;  ///< the type in place of float32, in half precision

  double elements() const { return static_cast<double>(spec.elements()) / parts; }
  DType type() const { return spec.dtype == DType::kFloat32 ? compute : spec.dtype; }
  double bytes() const { return elements() * static_cast<double>(DTypeSize(type())); }
  double last_dim() const {
    return spec.shape.empty() ? 1 : static_cast<double>(spec.shape.back());
  }
};

/// The shapes of the whole tensors.
TensorSpecs SpecsOf(const std::vector<Traced>& tensors);

class LayerTape {
 public:
  /// `input_parts` is Traced::parts of the inputs, `model` the number of ranks of the model axis.
  /// `script` may be null if no layer is scripted. `compute` is the type in place of float32.
  LayerTape(const TensorSpecs& inputs, int input_parts, int model, Script* script,
            DType compute = DType::kFloat32, const LayerHost& host = {});

  /// While an object lives, recorded work is also added to a LayerPart of this kind. Of nested
  /// objects only the innermost receives the work.
  class Part {
   public:
    Part(LayerTape& tape, std::string kind);
    ~Part() { tape_.part_ = before_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    LayerTape& tape_;
    const size_t before_;
  };

  const std::vector<Traced>& inputs() const { return inputs_; }
  int model() const { return model_; }
  Script* script() const { return script_; }
  const LayerHost& host() const { return host_; }
  /// The type in place of float32 for tensors made from now on: that of half precision, or the
  /// layer's own `dtype`.
  DType compute() const { return compute_; }
  void set_compute(DType compute) { compute_ = compute; }

  /// Makes a tensor in new memory, of which this rank has one of `parts` parts.
  Traced Fresh(TensorSpec spec, int parts = 1);
  /// Makes a tensor in new memory with the shape and the parts of `like`.
  Traced Fresh(const Traced& like) { return Fresh(like.spec, like.parts); }
  /// Makes a whole tensor in new memory with the dtype of `like` and the given number of elements.
  Traced Fresh(const Traced& like, double elements);
  /// Returns `of`'s memory with another shape or dtype.
  Traced View(const Traced& of, TensorSpec spec) const;

  /// Records that the backward keeps the tensor.
  void Keep(const Traced& tensor);
  /// For a part of a layer (parts.h): records that `tensor` is carried along, as a Residual's input
  /// is until its last part adds it. Unless all inputs are carried, this part does nothing else
  /// with it.
  void Carry(const Traced& tensor) { storages_[tensor.storage].is_carried = true; }
  /// Records that the weight gradient needs `input` and the gradient of `output`, which are
  /// therefore kept until the action W.
  void Defer(const Traced& input, const Traced& output);

  /// Adds products of `flops` operations to the forward. The gradients of the input and of the
  /// weight take as many each. Without a weight, both factors are inputs.
  void Multiply(double flops, bool has_weight, bool is_frozen);
  /// Records that the weight gradient is a RowProduct.
  void MultiplyRows();
  /// Adds bytes of memory that the passes read and write.
  void Touch(double forward, double input_grad, double weight_grad = 0);
  /// Moves the weight gradients' work of the current part to the input gradient: autograd computes
  /// both together, and nothing waits for the action W.
  void AllAtOnce();
  /// Adds bytes that this rank sends along the model axis.
  void Cross(double forward, double input_grad);
  /// Raises the peak of additional memory (LayerCost::forward_scratch, backward_scratch) to these
  /// bytes.
  void Scratch(double forward, double backward);
  /// Raises the peak of the input gradient (LayerCost::input_grad_scratch).
  void InputGradientScratch(double bytes);
  /// Adds the memory that was measured for a scripted layer, in addition to its inputs and outputs.
  void Measured(const LayerMemory& memory);
  void Guess() { cost_.is_guess = true; }

  /// Bytes that a rank sends in a ring all-reduce (Reduced), or in a gather or scatter (Gathered),
  /// of a whole tensor of `bytes` bytes.
  double Reduced(double bytes) const { return 2 * bytes * (model_ - 1) / model_; }
  double Gathered(double bytes) const { return bytes * (model_ - 1) / model_; }

  /// Returns the costs of all that was recorded, without the parameters. `outputs` are the outputs
  /// of the layer.
  LayerCost Finish(const std::vector<Traced>& outputs);

 private:
  struct Storage {
    double bytes = 0;
    bool is_kept = false;
    bool is_carried = false;
    bool is_deferred = false;
  };

  template <class Change>
  void AddWork(const Change& change);

  const int model_;
  Script* const script_;
  DType compute_;
  const LayerHost host_;
  std::vector<Traced> inputs_;
  std::vector<Storage> storages_;
  double deferred_ = 0;  // bytes of the gradients of outputs that Defer() keeps
  LayerCost cost_;
  size_t part_ = 0;  // index in cost_.parts of the part that receives the work
};

/// Records the work of the layer, and of the layers inside it, on the tape. Returns its outputs,
/// whose shapes are `outputs`. `spec` must be laid out (split.h). Throws ConfigError for a type
/// without a cost rule.
///
/// If a function of the script computes the layer, its memory is measured, provided that there is a
/// script. Its work is a guess: a product if one of the layer's matrices leads from the last dim of
/// the input to that of the output, products of all weights if the layer holds layers, else an
/// elementwise function.
std::vector<Traced> TraceLayer(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, const TensorSpecs& outputs);
/// Records the work of a loss. The tape's first input is the output of the last layer.
void TraceLoss(LayerTape& tape, const LayerSpec& loss);

}  // namespace strata
