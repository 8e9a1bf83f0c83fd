// LayerTape: a layer's forward pass as the tensors that it makes, the work on them, and what its
// backward needs of them. One rule for each type of layer (layer_rules.cc). Private to the package.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/costs/layer_costs.h"
#include "engine/spec/layers/layer_spec.h"
#include "engine/spec/layers/script.h"

namespace strata {

/// A tensor of the pass. Views of one memory have one storage.
struct Traced {
  TensorSpec spec;  ///< of the whole
  int storage = -1;
  int parts = 1;  ///< of which this rank has one

  double elements() const { return static_cast<double>(spec.elements()) / parts; }
  double bytes() const { return elements() * static_cast<double>(DTypeSize(spec.dtype)); }
  double last_dim() const {
    return spec.shape.empty() ? 1 : static_cast<double>(spec.shape.back());
  }
};

class LayerTape {
 public:
  /// `model`: ranks of the model axis.
  LayerTape(const TensorSpecs& inputs, int input_parts, int model);

  const std::vector<Traced>& inputs() const { return inputs_; }
  int model() const { return model_; }

  /// A tensor in memory of its own, of which the rank has one of `parts` parts.
  Traced Fresh(TensorSpec spec, int parts = 1);
  /// As `like`, of so many elements.
  Traced Fresh(const Traced& like, double elements);
  /// Another shape of the same memory.
  Traced View(const Traced& of, TensorSpec spec) const;

  /// A node of the backward holds the tensor.
  void Keep(const Traced& tensor);
  /// The weight gradient needs it, and the gradient of `output`.
  void Defer(const Traced& input, const Traced& output);

  /// Products: `flops` for the forward; the gradients of input and weight take as much each.
  void Multiply(double flops, bool has_weight, bool is_frozen);
  /// The weight gradient is a product of so many rows of both.
  void MultiplyRows(const Traced& input, const Traced& output, double rows);
  /// Memory that passes touch, in bytes.
  void Touch(double forward, double input_grad, double weight_grad = 0);
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

  /// All of it, the parameters left out.
  LayerCost Finish(const std::vector<Traced>& outputs);

 private:
  struct Storage {
    double bytes = 0;
    bool is_kept = false;
    bool is_deferred = false;
  };

  std::vector<Traced> inputs_;
  const int model_;
  std::vector<Storage> storages_;
  double deferred_ = 0;  // gradients of outputs
  LayerCost cost_;
};

/// What the layer, and those inside it, do with the inputs. `spec` is laid out (split.h).
std::vector<Traced> TraceLayer(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, Script* script);
/// A layer whose forward is the script's, with the outputs that it is known to give. `script` may
/// be null: then its memory is a guess too.
std::vector<Traced> TraceScripted(LayerTape& tape, const LayerSpec& spec,
                                  const std::vector<Traced>& inputs, const TensorSpecs& outputs,
                                  Script* script);
/// The loss of the last layer's output.
void TraceLoss(LayerTape& tape, const LayerSpec& loss, const Traced& output);

}  // namespace strata
