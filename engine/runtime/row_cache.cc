#include "engine/runtime/row_cache.h"

#include "engine/schedule/job_program.h"
#include "engine/schedule/lowering.h"

namespace strata {
namespace {

Row ProvedRow(const schedule::Program& program, int pipe_rank) {
  return CompileRow(schedule::LowerAndCheck(program), pipe_rank);
}

}  // namespace

const Row& RowCache::Training(int micro_batches) {
  const auto found = training_.find(micro_batches);
  if (found != training_.end()) return found->second;
  const schedule::Program program = TrainingProgram(job_, plan_, micro_batches, &script_);
  return training_.emplace(micro_batches, ProvedRow(program, pipe_rank_)).first->second;
}

const Row& RowCache::Evaluation(int micro_batches) {
  const auto found = evaluation_.find(micro_batches);
  if (found != evaluation_.end()) return found->second;
  const schedule::Program program = EvaluationProgram(plan_, micro_batches);
  return evaluation_.emplace(micro_batches, ProvedRow(program, pipe_rank_)).first->second;
}

}  // namespace strata
