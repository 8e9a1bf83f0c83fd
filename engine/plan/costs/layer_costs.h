// LayerCosts: what every layer of a job does and keeps for one full micro-batch, on one rank of the
// model axis. Work and memory follow from the declaration and the shapes; seconds come from a
// device's rates or from measurements (SetSeconds(), profile.h). Sums over a stage are what cuts,
// schedules and predictions are made of; engine/schedule/job/step_costs.h hands them to the
// simulator.
//
// What follows from a declaration is exact for the engine's own layers, as far as PyTorch's
// operators are known (layer_tape.h). The memory of layers written in Lua is measured on zeros of
// the micro-batch's shapes (Script::MeasureMemory); of their work nothing is known but shapes and
// parameters: they count as elementwise, or as a product where a matrix of theirs leads from the
// input's last dim to the output's (`is_guess`).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/spec/job/job.h"
#include "engine/spec/layers/script.h"

namespace strata {

/// One pass of a layer: forward, gradient of the input, or gradient of the weights.
struct Work {
  double flops = 0;       ///< floating-point operations; a multiply-add is two
  double bytes = 0;       ///< of memory, read and written
  double axis_bytes = 0;  ///< that this rank sends to the others of the model axis
  double seconds = 0;     ///< 0 until they are set

  Work& operator+=(const Work& other);
  bool operator==(const Work&) const = default;
};

/// Bytes are what the allocator takes for the tensors (size_class.h).
struct LayerCost {
  Work forward;
  Work input_grad;
  Work weight_grad;

  int64_t parameters = 0;      ///< trainable elements that this rank has
  int64_t weight_bytes = 0;    ///< values, frozen ones too; as they lie in flat buffers
  int64_t gradient_bytes = 0;  ///< of the trainable ones
  int64_t buffer_bytes = 0;    ///< state such as BatchNorm's
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;

  // What is kept from the forward to the backward. The output of one layer is the input of the
  // next, so that these cannot just be added: SumLayers().
  bool keeps_input = false;
  bool keeps_output = false;
  bool passes_input = false;  ///< the output is the input, or a view of it
  int64_t kept_bytes = 0;     ///< beside both

  // What stays after the input gradient until the weight gradient (I, W).
  bool defers_input = false;
  int64_t deferred_bytes = 0;  ///< beside the input: the output's gradient, mostly

  // Of its weight gradients that are products of rows (Linear, projections of attention):
  int64_t product_rows = 0;   ///< the most that one of them has; 0 = there are none
  int64_t product_bytes = 0;  ///< what they are made of: inputs and gradients of outputs

  // At the highest, beside what is kept, the output, and in the backward both gradients.
  int64_t forward_scratch = 0;
  int64_t backward_scratch = 0;

  bool is_guess = false;
};

/// Of a whole job.
struct ModelCosts {
  std::vector<LayerCost> layers;
  LayerCost loss;           ///< of the last layer's output
  double state_bytes = 0;   ///< of the optimizer, per trainable element (Adam: 8)
  double update_bytes = 0;  ///< that the optimizer's step reads and writes per element (Adam: 28)
  // Seconds per trainable element; 0 until they are set.
  double update_seconds = 0;  ///< of the optimizer's step
  double norm_seconds = 0;    ///< of the gradients' sum of squares
  double clear_seconds = 0;   ///< of making the gradients zero
  // Seconds per micro-batch, where they are measured.
  double input_seconds = 0;   ///< of reading the first stage's input
  double target_seconds = 0;  ///< of reading the last stage's target
  bool is_measured = false;   ///< the seconds are

  /// Values that the optimizer keeps per trainable element, of 4 bytes each.
  int moments() const { return static_cast<int>(std::lround(state_bytes / 4)); }
};

/// How fast a device is. 0 = takes no time.
struct DeviceRates {
  double flops = 0;   ///< per second, in the large products that the layers consist of
  double memory = 0;  ///< bytes per second
  double axis = 0;    ///< bytes per second from this rank to the others of the model axis
  double launch = 0;  ///< seconds per layer and pass, whatever its size
};

/// What goes into each layer, connections included (spec/connections.h). `outputs`: of each.
std::vector<TensorSpecs> LayerInputs(const std::vector<LayerSpec>& layers, const TensorSpecs& input,
                                     const std::vector<TensorSpecs>& outputs);

/// Whether it is known what layers of the type cost: all that there are, or a plan refuses them.
bool HasCostRule(std::string_view type);

/// The costs of a list of layers whose shapes are known, shared by `model` ranks. Dim 0 of `input`
/// is the micro-batch. `script` may be null when no layer is scripted.
ModelCosts CostsOf(const Job& job, const TensorSpecs& input,
                   const std::vector<TensorSpecs>& outputs, int model, Script* script);

/// The longer of computing and of moving memory, and what cannot overlap with them.
double Seconds(const Work& work, const DeviceRates& rates);
/// Sets all seconds by the rates.
void SetSeconds(ModelCosts& costs, const DeviceRates& rates);

/// Neighbouring layers on one stage.
struct StageCost {
  Work forward;
  Work input_grad;
  Work weight_grad;
  Work recompute;  ///< what runs forward again before or in the backward
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t input_bytes = 0;   ///< that is held from its arrival on
  int64_t output_bytes = 0;  ///< that leaves

  // Of one micro-batch, input included:
  int64_t kept_bytes = 0;      ///< from the forward to the (input) backward
  int64_t deferred_bytes = 0;  ///< from I to W
  bool keeps_output = false;   ///< what leaves is a part of what is kept
  // At the highest while the action runs, for its micro-batch, what is kept included:
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  int64_t input_grad_peak = 0;  ///< of I, which leaves the weight gradients to W
  /// What R adds to what the forward kept, until the backward.
  int64_t recomputed_bytes = 0;
  // Of joined layers (joining.h), for each micro-batch of a group:
  int64_t joined_bytes = 0;    ///< kept from W or B to the last of the group
  int64_t joined_scratch = 0;  ///< beside them while the products run

  /// All passes of one micro-batch.
  Work work() const;
  double seconds() const {
    return forward.seconds + input_grad.seconds + weight_grad.seconds + recompute.seconds;
  }
  double backward_seconds() const { return input_grad.seconds + weight_grad.seconds; }
};

/// Layers `begin` to `end` as one stage. The last of all has the loss. `segments`: of each layer of
/// the job, as LayerPlan::segment; empty: nothing is recomputed. A first stage computes no gradient
/// of its input, and keeps nothing before its first trainable layer. REQUIRES: begin < end.
StageCost SumLayers(const ModelCosts& costs, int begin, int end,
                    std::span<const int> segments = {});

}  // namespace strata
