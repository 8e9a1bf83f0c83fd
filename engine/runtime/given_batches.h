// GivenBatches: checks micro-batches that a caller brings against the job before any rank sees
// them.
#pragma once

#include <memory>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/step/run_tables.h"

namespace strata {

/// An error on a rank ends the engine; an error that this check finds, in the caller's thread, does
/// not. Two errors are found only by the ranks: tokens outside the table of a layer other than the
/// first, and targets that a scripted loss refuses.
class GivenBatches {
 public:
  /// `script` must outlive this object; job and plan are copied.
  GivenBatches(const Job& job, const Plan& plan, EngineScript& script);

  /// Throws ConfigError for inputs that the layers cannot take, for tokens that have no row in the
  /// first layer's table, and for micro-batches without rows.
  void CheckInputs(const MicroBatches& batches) { Check(batches, /*has_targets=*/false); }
  /// Checks inputs as CheckInputs() does, and targets against the loss: their shapes, and that
  /// labels are classes of the output.
  void CheckAll(const MicroBatches& batches) { Check(batches, /*has_targets=*/true); }

 private:
  void Check(const MicroBatches& batches, bool has_targets);
  void CheckTokens(const Tensors& input) const;
  void CheckTarget(const Tensors& target, const TensorSpecs& output) const;

  const Job job_;
  const Plan plan_;
  const LayerSpec planned_loss_;
  RunTables tables_;
  std::unique_ptr<Loss> loss_;  // null if the loss is scripted, or if there is none
};

}  // namespace strata
