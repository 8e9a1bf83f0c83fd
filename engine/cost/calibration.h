// Calibration: estimates the seconds of layers that were not measured from a few layers, the
// probes, that were measured on this machine. The probes have common types and sizes. They are
// measured and cached like the layers of any job (profile.h), once for each processor, number of
// threads and version.
#pragma once

#include "engine/cost/layer_costs.h"
#include "engine/cost/profile.h"
#include "engine/job/job.h"

namespace strata {

class Calibration {
 public:
  /// Takes the device, the threads, the copies and the precision from `like`.
  explicit Calibration(const MeasureTask& like);
  Calibration(const Calibration&) = delete;

  /// The task that measures the probes. The probes are no chain: the input of the first is the
  /// task's input, and the input of each later probe is stored in `outputs` at the place of the
  /// probe before it, although that probe does not compute it.
  const MeasureTask& task() const { return task_; }

  /// Sets all seconds of `costs`. The seconds of a layer are the sum over its parts
  /// (LayerCost::parts) of the part's seconds by NominalDevice(), multiplied by the ratio of
  /// measured to nominal seconds that the probes had. The ratio is a weighted mean over the probes
  /// of the part's kind; a probe weighs more the nearer it is in operations per byte and in size.
  /// For a kind without probes, all probes count that multiply in the same way as the part, or that
  /// do not multiply either. For a probe with several parts, its own part gets what remains after
  /// the others are subtracted. Probes that were not measured for lack of time do not count.
  /// `measured`: the profile of task().
  void SetSeconds(const Profile& measured, const std::vector<LayerSpec>& layers,
                  ModelCosts& costs) const;

 private:
  Job job_;
  MeasureTask task_;
  ModelCosts nominal_;  ///< nominal costs of the probes
};

}  // namespace strata
