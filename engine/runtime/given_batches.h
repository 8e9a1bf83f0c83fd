// GivenBatches: whether micro-batches that a caller brings fit the job, before ranks see them.
#pragma once

#include <memory>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/step/run_tables.h"

namespace strata {

/// An error on a rank ends the engine. What is found here, on the caller's thread, ends nothing.
/// Tokens beyond the table of another layer than the first, and what a loss of the script refuses,
/// only the ranks find.
class GivenBatches {
 public:
  /// The script must outlive this object.
  GivenBatches(const Job& job, const Plan& plan, EngineScript& script);

  /// Throws ConfigError for inputs that the layers cannot take, tokens that the first one has no
  /// row for, and micro-batches without rows.
  void CheckInputs(const MicroBatches& batches) { Check(batches, /*has_targets=*/false); }
  /// Also for targets that the loss cannot take: shapes, and labels that the output has not.
  void CheckAll(const MicroBatches& batches) { Check(batches, /*has_targets=*/true); }

 private:
  void Check(const MicroBatches& batches, bool has_targets);
  void CheckTokens(const Tensors& input) const;
  void CheckTarget(const Tensors& target, const TensorSpecs& output) const;

  const Job job_;
  const Plan plan_;
  const LayerSpec planned_loss_;
  RunTables tables_;
  std::unique_ptr<Loss> loss_;  // null where it is the script's, or there is none
};

}  // namespace strata
