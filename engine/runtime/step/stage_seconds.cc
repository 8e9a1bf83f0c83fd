#include "engine/runtime/step/stage_seconds.h"

#include <algorithm>

namespace strata {
namespace {

/// Calls function(stage) for the stages of all ranks before `end`, rank by rank.
template <class Function>
void ForEachStage(const Plan& plan, int end, const Function& function) {
  for (int rank = 0; rank < end; ++rank) {
    const int pipe_rank = plan.topology.Index(rank, kPipeAxis);
    for (const StagePlan& stage : plan.stages) {
      if (stage.rank == pipe_rank) function(stage);
    }
  }
}

}  // namespace

size_t StagesBefore(const Plan& plan, int rank) {
  size_t count = 0;
  ForEachStage(plan, rank, [&](const StagePlan&) { ++count; });
  return count;
}

std::vector<StageSeconds> MeasuredStages(const Totals& totals, const Plan& plan) {
  std::vector<StageSeconds> stages(plan.stages.size());
  auto next = totals.stage_seconds.begin();
  ForEachStage(plan, plan.topology.world_size(), [&](const StagePlan& stage) {
    StageSeconds& seconds = stages[stage.stage];
    seconds.forward = std::max(seconds.forward, *next++);
    seconds.backward = std::max(seconds.backward, *next++);
  });
  return stages;
}

}  // namespace strata
