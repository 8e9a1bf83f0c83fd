// ProvedPrograms: the lowered and proved programs that the ranks of a plan run. Torch-free.
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
/// backwards, and with the checker's report if the proof fails.
schedule::Program ProvedTraining(const Job& job, const Plan& plan, int micro_batches,
                                 Script* script);
/// EvaluationProgram(), lowered and proved.
schedule::Program ProvedEvaluation(const Plan& plan, int micro_batches);

/// The programs of a plan for its own number of micro-batches; each is proved at the first call. A
/// proof takes time proportional to the actions of all ranks, so all ranks of a process share one
/// object, and processes that are forked after the first call share its result. Thread-safe. A plan
/// with other cuts needs a new object.
class ProvedPrograms {
 public:
  const schedule::Program& Training(const Job& job, const Plan& plan, Script* script);
  const schedule::Program& Evaluation(const Plan& plan);

  /// The digest of the training program's text; "" before the first call of Training(). Ranks
  /// compare it, because two machines that search a schedule or call its function could get
  /// different ones.
  std::string TrainingDigest();

 private:
  std::mutex mutex_;
  std::optional<schedule::Program> training_, evaluation_;
  std::string digest_;
};

}  // namespace strata
