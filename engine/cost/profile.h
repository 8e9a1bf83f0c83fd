// Profile: measured seconds of a job's layers, and the files that store them. Nothing is measured
// here; engine/runtime/profiler.h does that.
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
  // Seconds per trainable element of a rank:
  double update = 0;               ///< the optimizer step
  double norm = 0;                 ///< the sum of squares of the gradients
  double clear = 0;                ///< setting the gradients to zero
  double action = kActionSeconds;  ///< seconds per compute action, beyond its layers
  // Seconds per micro-batch:
  double input = 0;   ///< reading the first stage's input
  double target = 0;  ///< reading the last stage's target
  LinkRates link;     ///< between two processes of this machine; takes no time = not measured
  SecondsFrom seconds_from = SecondsFrom::kMeasured;
  bool is_whole = true;           ///< false: only some layers were measured; all others have 0
  std::vector<RanPlan> ran = {};  ///< ModelCosts::ran
};

/// What the seconds of a layer depend on besides the layer itself (TraitsOf()). Ranks share the
/// memory bandwidth, so a layer takes longer beside some layers than beside others.
struct PlanTraits {
  std::vector<std::string> places = {};  ///< per layer: its rank, the grid, and how it runs
  std::string transport = {};
  RanPlan plan = {};
  bool operator==(const PlanTraits&) const = default;
};

/// If a rank had a smaller share of its core, the measured seconds are not those of an idle
/// machine.
inline constexpr double kLeastProcessorShare = 0.9;

/// What to measure: the layers of a job on one device, as the job's ranks would run them.
struct MeasureTask {
  const Job* job = nullptr;
  TensorSpecs input;                 ///< of a full micro-batch
  std::vector<TensorSpecs> outputs;  ///< of every layer
  Batch batch;                       ///< with all sizes set
  std::string device;                ///< "cpu" or "cuda"
  int threads = 1;                   ///< threads per rank
  /// Ranks that run side by side on this machine and slow each other down; so many are measured.
  int copies = 1;
  int model = 1;  ///< ranks that share each layer; whole layers are measured
  /// If true, nothing runs. The result is what was measured before, of some layers or of all
  /// (is_whole), or a profile without layers.
  bool only_known = false;
  /// Set once there is a plan. With only_known the result is from those earlier runs that were most
  /// like it.
  PlanTraits plan = {};
  /// No further layer is begun after so many seconds, and unmeasured layers have 0. 0 = measure
  /// all.
  double most_seconds = 0;
};

/// Measures what the task asks for. Throws WorldError if no layer can run.
using Measure = std::function<Profile(const MeasureTask&)>;

/// Puts the measured seconds into `costs`. Where the model axis shares a layer, a rank's seconds
/// are its share of the work, plus the time of its messages along the axis. Layers that were not
/// measured keep their seconds. `whole`: the costs of the layers when they are not shared.
/// REQUIRES: `profile` has an entry for each layer.
void SetSeconds(ModelCosts& costs, const Profile& profile, const ModelCosts& whole,
                const std::string& device);

/// A key that is equal for layers that cost the same: it depends on type, options and functions,
/// shapes, and on whether the layer may work in place.
std::string LayerKey(const MeasureTask& task, size_t layer);

/// The known seconds of each layer key.
using KnownSeconds = std::map<std::string, PassSeconds>;

/// The value for the key `costs`: {"costs" = 1, "job", "device", "threads", "micro_batch_size",
/// "layers" = [{"layer", "type", "forward", "input_grad", "weight_grad"}], "loss" = {...},
/// "update", "norm", "clear", "input", "target"}, all in seconds; and "link" = {"latency",
/// "bandwidth"}.
Value ProfileValue(const Profile& profile, const MeasureTask& task);
/// Reads a profile from such a value. Throws ConfigError, beginning with `where`, if its layers or
/// its micro-batch size are not the job's, or if a value is not a number of at least 0.
Profile ReadProfile(const Value& value, const MeasureTask& task, const std::string& where);
/// Reads the file at `path`; throws ConfigError also if it cannot be read.
Profile ReadProfile(const std::string& path, const MeasureTask& task);

/// Conversions without layer names and checks against a job, for messages between processes and for
/// the cache.
Value ToValue(const PassSeconds& seconds);
PassSeconds PassSecondsOf(const Value& value, const std::string& where);
Value ToValue(const LinkRates& link);
LinkRates LinkRatesOf(const Value& value, const std::string& where);

}  // namespace strata
