// LayerTape: a layer's forward pass as the tensors that it makes, the work on them, and what its
// backward needs of them. The cost rule of the layer's type (LayerType::cost) writes it.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer_cost.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/script.h"

namespace strata {

/// A tensor of the pass. Views of one memory have one storage.
struct Traced {
  TensorSpec spec;  ///< of the whole
  int storage = -1;
  int parts = 1;                    ///< of which this rank has one
  DType compute = DType::kFloat32;  ///< what float32 is in half precision

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
  /// `model`: ranks of the model axis. `script` may be null when no layer is scripted.
  LayerTape(const TensorSpecs& inputs, int input_parts, int model, Script* script,
            DType compute = DType::kFloat32);

  /// While an object lives, what passes do is a part of its own of the layer's work, of this kind
  /// (LayerPart), but for what an object inside it takes.
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
  /// What float32 is from here on, in half precision or for a layer with a type of its own.
  DType compute() const { return compute_; }
  void set_compute(DType compute) { compute_ = compute; }

  /// A tensor in memory of its own, of which the rank has one of `parts` parts.
  Traced Fresh(TensorSpec spec, int parts = 1);
  /// The shape and the parts of `like`.
  Traced Fresh(const Traced& like) { return Fresh(like.spec, like.parts); }
  /// The dtype of `like`, with so many elements.
  Traced Fresh(const Traced& like, double elements);
  /// Another shape of the same memory.
  Traced View(const Traced& of, TensorSpec spec) const;

  /// A node of the backward holds the tensor.
  void Keep(const Traced& tensor);
  /// The layer is a part of one, which a part behind it, or it as the last, needs the tensor for;
  /// where it is not all of the inputs, this part does nothing else with it.
  void Carry(const Traced& tensor) { storages_[tensor.storage].is_carried = true; }
  /// The weight gradient needs it, and the gradient of `output`.
  void Defer(const Traced& input, const Traced& output);

  /// Products: `flops` for the forward; the gradients of input and weight take as much each.
  void Multiply(double flops, bool has_weight, bool is_frozen);
  /// The weight gradient is a product of rows.
  void MultiplyRows();
  /// Memory that passes touch, in bytes.
  void Touch(double forward, double input_grad, double weight_grad = 0);
  /// Of the part so far: the gradients of the weights come with the input's, nothing waits for W.
  void AllAtOnce();
  /// Bytes that the rank sends along the model axis.
  void Cross(double forward, double input_grad);
  /// Further memory at the highest of a pass.
  void Scratch(double forward, double backward);
  /// What a scripted layer was seen to allocate beside its inputs and outputs.
  void Measured(const LayerMemory& memory);
  void Guess() { cost_.is_guess = true; }

  /// What an all-reduce, a gather or a scatter of the whole tensor sends.
  double Reduced(double bytes) const { return 2 * bytes * (model_ - 1) / model_; }
  double Gathered(double bytes) const { return bytes * (model_ - 1) / model_; }

  /// The sum of all passes, without the parameters.
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
  std::vector<Traced> inputs_;
  std::vector<Storage> storages_;
  double deferred_ = 0;  // gradients of outputs
  LayerCost cost_;
  size_t part_ = 0;  // what happens now is a part of, in cost_.parts
};

/// Writes what the layer, and the layers inside it, do with the inputs. Returns the outputs, whose
/// shapes are `outputs`. `spec` is laid out (split.h). Throws ConfigError for a type that has no
/// cost rule.
///
/// Where a function of the script computes the layer, the memory is measured if there is a script.
/// The work is a guess: a product if one of the layer's matrices leads from the last dim of the
/// input to that of the output, else elementwise.
std::vector<Traced> TraceLayer(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, const TensorSpecs& outputs);
/// The same for the loss of the tape's first input, the last layer's output.
void TraceLoss(LayerTape& tape, const LayerSpec& loss);

}  // namespace strata
