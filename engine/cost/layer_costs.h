// ModelCosts: the work and memory of every layer of a job for one full micro-batch, on one rank of
// the model axis. Work and memory follow from the layer's cost rule (LayerType::cost) and the
// shapes. Seconds come from a device's rates or from measurements (SetSeconds(), profile.h). Cuts,
// schedules and predictions use sums over a stage; engine/forecast/step_costs.h passes these sums
// to the simulator.
//
// The costs of built-in layers are exact as far as PyTorch's operators are known. The memory of
// layers written in Lua is measured on zeros of the micro-batch's shapes (Script::MeasureMemory);
// their work is estimated from shapes and parameters (TraceScripted()).
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

/// The source of the seconds. plan/plan_seconds.h decides which.
enum class SecondsFrom {
  kNowhere,   ///< no seconds are set
  kStated,    ///< NominalDevice(): a machine that was not measured
  kFile,      ///< the user's file, job.costs
  kMeasured,  ///< measured on this machine: in trainings, layers alone, or probes (calibration.h)
};

/// Seconds that the engine itself needs for one compute action, including its part of the messages,
/// beyond the seconds of the layers. Measured with engine/runtime/step/action_benchmark.cc and
/// tools/bench --workload=empty, against layers measured alone.
inline constexpr double kActionSeconds = 4e-6;

/// The cuts, the ranks of the stages and the schedule of a plan that has already run.
struct RanPlan {
  std::vector<int> bounds = {};       ///< Plan::bounds
  std::vector<int> stage_ranks = {};  ///< the rank of every stage
  std::string schedule = {};          ///< Plan::schedule
  bool operator==(const RanPlan&) const = default;
};

/// A connection (layers/connections.h), by indices of layers. Its value is the input of `from`.
struct ConnectionCost {
  int from = 0;  ///< the strata.skip
  int to = 0;    ///< the strata.join
};

/// Costs of every layer of a job, of its loss, and of its optimizer step.
struct ModelCosts {
  std::vector<LayerCost> layers;
  std::vector<ConnectionCost> connections = {};  ///< ordered by `from`
  LayerCost loss;                                ///< computed on the last layer's output
  /// The rows of a chunk if the last layer and the loss run in chunks (layers/head_chunks.h), else
  /// 0. With chunks the forward also does the work of their backward, and there are no logits.
  int64_t chunk_rows = 0;
  /// Number of optimizer state tensors per trainable element; Adam has two (its moments).
  /// LayerCost::extra_state_bytes counts the further state of optimizer groups.
  int moments = 0;
  double state_bytes = 0;   ///< of the moments per element, in the parameters' type (float32: 8)
  double update_bytes = 0;  ///< that the optimizer step reads and writes per element (Adam: 28)
  // Seconds per trainable element; 0 until they are set.
  double update_seconds = 0;  ///< the optimizer step
  double norm_seconds = 0;    ///< the sum of squares of the gradients
  double clear_seconds = 0;   ///< setting the gradients to zero
  /// Seconds of a compute action beyond those of its layers.
  double action_seconds = kActionSeconds;
  // Seconds per micro-batch; 0 if not measured.
  double input_seconds = 0;   ///< reading the first stage's input
  double target_seconds = 0;  ///< reading the last stage's target
  SecondsFrom seconds_from = SecondsFrom::kNowhere;
  /// The link between two processes of this machine; takes no time if it was not measured.
  LinkRates link;
  /// The plans whose runs gave the seconds, each once; empty if the seconds are not from runs.
  std::vector<RanPlan> ran = {};

  bool has_seconds() const { return seconds_from != SecondsFrom::kNowhere; }
  /// True if the seconds were measured, here or by the user.
  bool is_measured() const { return seconds_from >= SecondsFrom::kFile; }
  /// The source of the seconds for messages: "measured costs".
  const char* SourceText() const;
};

/// The speed of a device. A rate of 0 means that this kind of work takes no time.
struct DeviceRates {
  double flops = 0;   ///< operations per second, in the large products of which layers consist
  double memory = 0;  ///< bytes per second
  double axis = 0;    ///< bytes per second from this rank to the others of the model axis
  double launch = 0;  ///< seconds per layer and pass, for any size
};

/// Rates of a machine that was not measured: a server core, or for "cuda" an A100-like GPU. Use
/// them for shares and comparisons; the absolute seconds are not reliable.
DeviceRates NominalDevice(const std::string& device);

/// The inputs of each layer, including those that connections bring (layers/connections.h).
/// `outputs`: the outputs of each layer.
std::vector<TensorSpecs> LayerInputs(const std::vector<LayerSpec>& layers, const TensorSpecs& input,
                                     const std::vector<TensorSpecs>& outputs);

/// The costs of a job's layers with known shapes, shared by `model` ranks. Dim 0 of `input` is the
/// micro-batch. `script` may be null if no layer is scripted. If `input` is empty, only the
/// parameters are counted. The seconds are not set.
ModelCosts CostsOf(const Job& job, const TensorSpecs& input,
                   const std::vector<TensorSpecs>& outputs, int model, Script* script,
                   const LayerHost& host = {});

/// The seconds of a pass: the longer of computing and moving memory, plus communication and
/// launches, which overlap with neither.
double Seconds(const Work& work, const DeviceRates& rates);
/// The seconds of the pass that are communication along the model axis: over the link if it was
/// measured, else at the stated rate.
double AxisSeconds(const Work& work, const LinkRates& link, const DeviceRates& rates);
/// Sets all seconds from the rates.
void SetSeconds(ModelCosts& costs, const DeviceRates& rates);

/// Operations per second of the fastest pass among layers with a noticeable share of the forward
/// work; layers of equal work count together. 0 without seconds or without work.
double FastestFlops(const ModelCosts& costs);

/// The costs of neighbouring layers that form one stage.
struct StageCost {
  Work forward;
  Work input_grad;
  Work weight_grad;
  Work recompute;  ///< forward passes that run again before or in the backward
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t extra_state_bytes = 0;
  // With the values of connections that cross the cuts:
  int64_t input_bytes = 0;   ///< of the input that arrives and is held
  int64_t output_bytes = 0;  ///< of the output that is sent

  // Bytes of one micro-batch, its input included:
  int64_t kept_bytes = 0;      ///< from the forward to the (input-gradient) backward
  int64_t deferred_bytes = 0;  ///< from I (input gradient) to W (weight gradient)
  bool keeps_output = false;   ///< kept_bytes counts the output
  // The peak bytes of one micro-batch while the action runs, including what it keeps:
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  int64_t input_grad_peak = 0;  ///< of I, the backward without the weight gradients (W)
  int64_t recompute_peak = 0;   ///< of R; 0 if nothing is recomputed
  /// Further activations that exist between R (recomputation) and the backward.
  int64_t recomputed_bytes = 0;

  /// The work of all passes of one micro-batch.
  Work work() const;
  double seconds() const {
    return forward.seconds + input_grad.seconds + weight_grad.seconds + recompute.seconds;
  }
  double backward_seconds() const { return input_grad.seconds + weight_grad.seconds; }
};

/// Sums layers `begin` to `end` as one stage. If they include the job's last layer, the loss is
/// added. `segments` has LayerPlan::segment of each layer of the job; if it is empty, nothing is
/// recomputed. Layers before the job's first trainable one keep nothing and compute no gradients,
/// and the input of that one has no gradient. REQUIRES: begin < end.
StageCost SumLayers(const ModelCosts& costs, int begin, int end,
                    std::span<const int> segments = {});

/// The bytes of the message at a cut before each layer, and last those of the output.
std::vector<int64_t> MessageBytes(const ModelCosts& costs);
/// The job's first layer that learns; their number if none does.
int FirstLearning(const ModelCosts& costs);

}  // namespace strata
