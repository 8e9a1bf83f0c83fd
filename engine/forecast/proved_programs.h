// ProvedPrograms: what the ranks of a plan run. Torch-free.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// TrainingProgram(), lowered and proved. Throws ConfigError as it does, for a schedule without
/// backwards, and with the checker's report.
schedule::Program ProvedTraining(const Job& job, const Plan& plan, int micro_batches,
                                 Script* script);
/// EvaluationProgram(), lowered and proved.
schedule::Program ProvedEvaluation(const Plan& plan, int micro_batches);

/// The programs of a plan for its own number of micro-batches, each proved when it is first asked
/// for. Proving takes time for the actions of all ranks, so all ranks of a process share one
/// object, and so do processes that are forked once it was asked. Any thread may ask. A plan with
/// other cuts needs another object.
class ProvedPrograms {
 public:
  const schedule::Program& Training(const Job& job, const Plan& plan, Script* script);
  const schedule::Program& Evaluation(const Plan& plan);

  /// Of the training program's text; "" where nobody has asked for it yet. Two machines that search
  /// or evaluate a schedule could find two.
  std::string TrainingDigest();

 private:
  std::mutex mutex_;
  std::optional<schedule::Program> training_, evaluation_;
  std::string digest_;
};

}  // namespace strata
