// Profile: measured seconds of a job's layers, and the files that keep them.
// engine/runtime/profiler.h measures; here nothing runs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/cost/layer_costs.h"
#include "engine/job/job.h"

namespace strata {

/// Seconds of a layer's passes for one full micro-batch.
struct PassSeconds {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  bool operator==(const PassSeconds&) const = default;
};

struct Profile {
  std::vector<PassSeconds> layers;
  PassSeconds loss;
  // Per trainable element of a rank:
  double update = 0;               ///< the optimizer's step
  double norm = 0;                 ///< the sum of the gradients' squares
  double clear = 0;                ///< making the gradients zero
  double action = kActionSeconds;  ///< of each action that computes, beside its layers
  // Per micro-batch:
  double input = 0;   ///< reading the first stage's input
  double target = 0;  ///< reading the last stage's target
  LinkRates link;     ///< between two processes of this machine; takes no time = not measured
  /// kMeasuredRates: only some layers were measured; what was not has 0.
  SecondsFrom seconds_from = SecondsFrom::kMeasuredLayers;
  std::vector<RanPlan> ran = {};  ///< ModelCosts::ran
};

/// What seconds depend on beside the layers themselves (TraitsOf()). Ranks share the memory's
/// bandwidth, so that a layer takes longer beside some layers than beside others.
struct PlanTraits {
  std::vector<std::string> places = {};  ///< of each layer: its rank, of which grid, how it runs
  std::string transport = {};
  RanPlan plan = {};
  bool operator==(const PlanTraits&) const = default;
};

/// With less of the processor, measured seconds are not those of an idle machine.
inline constexpr double kLeastProcessorShare = 0.9;

/// What is measured: the layers of a job on one device, as its ranks would run them.
struct MeasureTask {
  const Job* job = nullptr;
  TensorSpecs input;                 ///< of a full micro-batch
  std::vector<TensorSpecs> outputs;  ///< of every layer
  Batch batch;                       ///< complete
  std::string device;                ///< "cpu" or "cuda"
  int threads = 1;                   ///< of a rank
  /// Ranks that run side by side on this machine and slow each other down; the measurement does.
  int copies = 1;
  int model = 1;  ///< ranks that share each layer; what is measured are whole ones
  /// Nothing runs: what was measured before is given, of some layers or of all (seconds_from), or a
  /// profile without layers.
  bool only_known = false;
  /// Once there is a plan. With only_known what those runs have told that were most like it.
  PlanTraits plan = {};
  /// After these seconds no more layers are begun, and those that were not measured have 0; 0 = all
  /// are measured.
  double most_seconds = 0;
};

/// Measures what the task asks for. Throws WorldError where no layer can run.
using Measure = std::function<Profile(const MeasureTask&)>;

/// Puts the measured seconds into the costs. Where the model axis shares a layer, its time is
/// shared as its work is, and what it sends along the axis is added. What was not measured keeps
/// the seconds that it has. REQUIRES: a pass for each layer.
void SetSeconds(ModelCosts& costs, const Profile& profile, const ModelCosts& whole,
                const std::string& device);

/// Layers that cost the same have the same key: type, options and functions, shapes, and whether
/// they may work in place.
std::string LayerKey(const MeasureTask& task, size_t layer);

/// What is known of each key.
using KnownSeconds = std::map<std::string, PassSeconds>;

/// For the key `costs`: {"costs" = 1, "job", "device", "threads", "micro_batch_size", "layers" =
/// [{"layer", "type", "forward", "input_grad", "weight_grad"}], "loss" = {...}, "update", "norm",
/// "clear", "input", "target"}, all in seconds; and "link" = {"latency", "bandwidth"}.
Value ProfileValue(const Profile& profile, const MeasureTask& task);
/// Reads it back. Throws ConfigError, beginning with `where`: no such file, other layers than the
/// job's, another micro-batch size, a number that is negative or none.
Profile ReadProfile(const Value& value, const MeasureTask& task, const std::string& where);
/// Of the file at `path`.
Profile ReadProfile(const std::string& path, const MeasureTask& task);

/// The same without names and checks against a job: between processes, and in the cache.
Value ToValue(const PassSeconds& seconds);
PassSeconds PassSecondsOf(const Value& value, const std::string& where);
Value ToValue(const LinkRates& link);
LinkRates LinkRatesOf(const Value& value, const std::string& where);

}  // namespace strata
