// Evaluation: forwards only. With one stage per rank the order is that of DeepSpeed's
// InferenceSchedule.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/generators/list_schedule.h"

namespace strata::schedule {

// P ranks, M micro-batches; a column is a time step. P = 3, M = 4, one stage per rank:
//
//   stage 0 | F0 F1 F2 F3 .  .
//   stage 1 | .  F0 F1 F2 F3 .
//   stage 2 | .  .  F0 F1 F2 F3
Program Inference(const Sizes& sizes) {
  return EvaluationProgram(LoopMap(sizes.ranks, sizes.stages_per_rank), sizes.micro_batches);
}

Program EvaluationProgram(const std::vector<int>& stage_ranks, int micro_batches) {
  STRATA_CHECK(!stage_ranks.empty() && micro_batches > 0) << "nothing to run";
  const int ranks = *std::max_element(stage_ranks.begin(), stage_ranks.end()) + 1;
  Program program = IdleGrid("inference", stage_ranks, ranks, micro_batches, 0);
  program.is_training = false;
  return WithIdleSteps(ListSchedule(std::move(program), {}, {}));
}

}  // namespace strata::schedule
