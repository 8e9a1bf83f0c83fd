// ModelCosts: what every layer of a job does and keeps for one full micro-batch, on one rank of the
// model axis. Work and memory follow from the layer's cost rule (LayerType::cost) and the shapes.
// Seconds come from a device's rates or from measurements (SetSeconds(), profile.h). Cuts,
// schedules and predictions are made of sums over a stage. engine/forecast/step_costs.h
// hands these sums to the simulator.
//
// The costs of the engine's own layers are exact, as far as PyTorch's operators are known. The
// memory of layers written in Lua is measured on zeros of the micro-batch's shapes
// (Script::MeasureMemory). Their work is a guess from shapes and parameters (TraceScripted()).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/cost/link_rates.h"
#include "engine/job/job.h"
#include "engine/layers/layer_cost.h"
#include "engine/layers/script.h"

namespace strata {

/// Where seconds come from, the better the later.
enum class SecondsFrom {
  kNowhere,         ///< there are none
  kStatedRates,     ///< NominalDevice(): a machine that nobody measured
  kMeasuredRates,   ///< what a few other layers take on this machine (calibration.h)
  kMeasuredLayers,  ///< the layers themselves, alone (profile.h)
  kEarlierRuns      ///< the same in the steps of a training (engine/forecast)
};

/// What the engine itself takes for an action that computes, its part of the messages included:
/// engine/runtime/step/action_benchmark.cc and tools/bench --workload=empty, against layers that
/// were measured alone. Seconds of layers are without it.
inline constexpr double kActionSeconds = 4e-6;

/// Where a plan of an earlier run had its layers, and in which order it ran.
struct RanPlan {
  std::vector<int> bounds = {};       ///< Plan::bounds
  std::vector<int> stage_ranks = {};  ///< of every stage
  std::string schedule = {};          ///< Plan::schedule
  bool operator==(const RanPlan&) const = default;
};

/// Of a whole job.
struct ModelCosts {
  std::vector<LayerCost> layers;
  LayerCost loss;  ///< of the last layer's output
  /// That the optimizer keeps per trainable element (Adam: 2); LayerCost::extra_state_bytes has
  /// what its groups keep beside them.
  int moments = 0;
  double state_bytes = 0;   ///< of these, in the type of the parameters (float32: 8)
  double update_bytes = 0;  ///< that the optimizer's step reads and writes per element (Adam: 28)
  // Seconds per trainable element; 0 until they are set.
  double update_seconds = 0;  ///< of the optimizer's step
  double norm_seconds = 0;    ///< of the gradients' sum of squares
  double clear_seconds = 0;   ///< of making the gradients zero
  /// Of an action that computes, beside its layers.
  double action_seconds = kActionSeconds;
  // Seconds per micro-batch, where they are measured.
  double input_seconds = 0;   ///< of reading the first stage's input
  double target_seconds = 0;  ///< of reading the last stage's target
  SecondsFrom seconds_from = SecondsFrom::kNowhere;
  /// Between two processes of this machine, where it is measured.
  LinkRates link;
  /// Of the runs that the seconds are of (kEarlierRuns), each once.
  std::vector<RanPlan> ran = {};

  bool has_seconds() const { return seconds_from != SecondsFrom::kNowhere; }
  /// They are this machine's.
  bool is_measured() const { return seconds_from >= SecondsFrom::kMeasuredRates; }
  /// "measured costs", "measured rates", ...: by what something is predicted.
  const char* SourceText() const;
};

/// How fast a device is. 0 = takes no time.
struct DeviceRates {
  double flops = 0;   ///< per second, in the large products that the layers consist of
  double memory = 0;  ///< bytes per second
  double axis = 0;    ///< bytes per second from this rank to the others of the model axis
  double launch = 0;  ///< seconds per layer and pass, whatever its size
};

/// Of a machine that nobody measured: a core of a server, or an A100-like GPU. Shares and
/// comparisons are good where its seconds are not.
DeviceRates NominalDevice(const std::string& device);

/// The inputs of each layer, with what connections bring (layers/connections.h). `outputs`:
/// the outputs of each layer.
std::vector<TensorSpecs> LayerInputs(const std::vector<LayerSpec>& layers, const TensorSpecs& input,
                                     const std::vector<TensorSpecs>& outputs);

/// The costs of a list of layers whose shapes are known, shared by `model` ranks. Dim 0 of `input`
/// is the micro-batch. `script` may be null when no layer is scripted.
ModelCosts CostsOf(const Job& job, const TensorSpecs& input,
                   const std::vector<TensorSpecs>& outputs, int model, Script* script);

/// The time of the pass: the longer of computing and moving memory, plus communication and
/// launches, which overlap with neither.
double Seconds(const Work& work, const DeviceRates& rates);
/// What of the pass is communication along the model axis: over the link, where that was measured,
/// else at the stated rate.
double AxisSeconds(const Work& work, const LinkRates& link, const DeviceRates& rates);
/// Sets all seconds by the rates.
void SetSeconds(ModelCosts& costs, const DeviceRates& rates);

/// Operations a second of the fastest pass of a layer that has a noticeable share of the forwards'
/// work, together with those that are of its size. 0 without seconds, or work.
double FastestFlops(const ModelCosts& costs);

/// Neighbouring layers on one stage.
struct StageCost {
  Work forward;
  Work input_grad;
  Work weight_grad;
  Work recompute;  ///< of the layers that run forward again before or in the backward
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t extra_state_bytes = 0;
  int64_t input_bytes = 0;   ///< of the input that arrives and is held
  int64_t output_bytes = 0;  ///< of the output that leaves

  // Of one micro-batch, input included:
  int64_t kept_bytes = 0;      ///< from the forward to the (input) backward
  int64_t deferred_bytes = 0;  ///< from I to W
  bool keeps_output = false;   ///< the output that leaves is counted in kept_bytes
  // The most memory while the action runs, for its micro-batch, with what is kept:
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  int64_t input_grad_peak = 0;  ///< of I, the backward without the weight gradients (W)
  /// Further activations between R and the backward.
  int64_t recomputed_bytes = 0;

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
