#include "engine/runtime/step/row_cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/job/planned_program.h"
#include "engine/schedule/lower/lowering.h"

namespace strata {
namespace {

Row ProvedRow(const schedule::Program& program, const Plan& plan, int pipe_rank) {
  return CompileRow(schedule::LowerAndCheck(program, {.tied_stages = plan.tied_stages()}),
                    pipe_rank, program.is_training ? plan.joined() : std::vector<int>());
}

}  // namespace

const Row& RowCache::Training(int micro_batches) {
  const auto found = training_.find(micro_batches);
  if (found != training_.end()) return found->second;
  const auto program = TrainingProgram(job_, plan_, std::max(micro_batches, 1), &script_);
  if (!program.is_training) {
    throw ConfigError(Str("schedule \"", program.name, "\" has no backwards; it cannot train"));
  }
  Row row = ProvedRow(program, plan_, pipe_rank_);
  if (micro_batches == 0) row = WithoutMicroBatches(std::move(row));
  return training_.emplace(micro_batches, std::move(row)).first->second;
}

const Row& RowCache::Evaluation(int micro_batches) {
  const auto found = evaluation_.find(micro_batches);
  if (found != evaluation_.end()) return found->second;
  const schedule::Program program = EvaluationProgram(plan_, micro_batches);
  return evaluation_.emplace(micro_batches, ProvedRow(program, plan_, pipe_rank_)).first->second;
}

}  // namespace strata
