#include "engine/forecast/proved_programs.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/forecast/planned_program.h"
#include "engine/schedule/lowering.h"

namespace strata {

using schedule::Program;

Program ProvedTraining(const Job& job, const Plan& plan, int micro_batches, Script* script) {
  const Program program = TrainingProgram(job, plan, micro_batches, script);
  if (!program.is_training) {
    throw ConfigError(Str("schedule \"", program.name, "\" has no backwards; it cannot train"));
  }
  return schedule::LowerAndCheck(program, {.tied_stages = plan.tied_stages()});
}

Program ProvedEvaluation(const Plan& plan, int micro_batches) {
  return schedule::LowerAndCheck(EvaluationProgram(plan, micro_batches),
                                 {.tied_stages = plan.tied_stages()});
}

const Program& ProvedPrograms::Training(const Job& job, const Plan& plan, Script* script) {
  const std::lock_guard lock(mutex_);
  if (!training_) {
    training_ = ProvedTraining(job, plan, static_cast<int>(plan.batch.micro_batches), script);
    digest_ = Digest(ToCsv(*training_));
  }
  return *training_;
}

const Program& ProvedPrograms::Evaluation(const Plan& plan) {
  const std::lock_guard lock(mutex_);
  if (!evaluation_) {
    evaluation_ = ProvedEvaluation(plan, static_cast<int>(plan.batch.micro_batches));
  }
  return *evaluation_;
}

std::string ProvedPrograms::TrainingDigest() {
  const std::lock_guard lock(mutex_);
  return digest_;
}

}  // namespace strata
