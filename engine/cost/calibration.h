// Calibration: the seconds of layers that nobody measured, from what a few others take on this
// machine. These probes, of common types and sizes, are measured and kept as the layers of any job
// are (profile.h), once for each processor, number of threads and version.
#pragma once

#include "engine/cost/layer_costs.h"
#include "engine/cost/profile.h"
#include "engine/job/job.h"

namespace strata {

class Calibration {
 public:
  /// With the device, the threads, the copies and the precision of `like`.
  explicit Calibration(const MeasureTask& like);
  Calibration(const Calibration&) = delete;

  /// Measures the probes. The first layer's input is the task's; that of any other is what
  /// `outputs` has for the one before, though no probe gives it.
  const MeasureTask& task() const { return task_; }

  /// Sets all seconds of the layers' costs: of each part of a layer's work (LayerCost::parts)
  /// NominalDevice()'s, each pass times what it took of the probes in place of their nominal
  /// seconds. The probes of the part's kind count, the more the nearer they are by operations per
  /// byte and by size; of a kind without probes all those count that multiply in the same way, or
  /// do not multiply. Of a probe with several parts the one that is its own takes what is left of
  /// the others. Probes that time did not suffice for do not count. `measured`: of task().
  void SetSeconds(const Profile& measured, const std::vector<LayerSpec>& layers,
                  ModelCosts& costs) const;

 private:
  Job job_;
  MeasureTask task_;
  ModelCosts nominal_;  ///< of the probes
};

}  // namespace strata
