// PlanJob: plans jobs whose cuts, schedule and stages are named, and jobs for which they are
// chosen.
#include "engine/search/plan_job.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/forecast/planned_program.h"
#include "engine/forecast/users_program.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/recompute.h"
#include "engine/plan/uncut_plan.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/memory_fit.h"
#include "engine/search/plan_choice.h"

namespace strata {
namespace {

using schedule::Program;

/// Checks the R actions of a user's program. It may have an R where the plan recomputes no layer;
/// then the whole stage runs forward again, and no layer of it may have a max norm.
void CheckOwnR(const Job& job, const Plan& plan, Script* script) {
  if (!IsUsers(job) || std::ranges::none_of(job.layers, HasMaxNorm)) return;
  const Program program =
      TrainingProgram(job, plan, static_cast<int>(plan.batch.micro_batches), script);
  std::vector<int> again;
  for (const auto& row : program.rows) {
    for (const schedule::Action& action : row) {
      for (const schedule::Action& part : schedule::ActionParts(action)) {
        if (part.kind == schedule::Kind::kRecompute) again.push_back(part.stage);
      }
    }
  }
  for (const int stage : RecomputedStages(plan)) std::erase(again, stage);
  CheckMaxNorm(job, plan, again);
}

Plan PlanNamed(const Job& job, const UncutPlan& uncut_plan, const Extent& extent, Script* script) {
  const std::vector<int> stage_ranks =
      IsUsers(job) ? UsersStageRanks(job, extent, script)
                   : schedule::StageMap(job.schedule.name, extent.ranks, job.stages_per_rank);
  Plan plan = uncut_plan.Cut(job, stage_ranks, PlanSettings(job, extent, script));
  if (!IsUsers(job)) {
    schedule::CheckSizes(job.schedule.name,
                         {extent.ranks, job.stages_per_rank, extent.micro_batches});
  }
  FitRecomputation(job, script, plan);
  return plan;
}

}  // namespace

Plan PlanJob(const Job& asked, PlanOptions options, Script* script) {
  const Extent extent = {std::max(asked.parallel.pipe, 1),
                         static_cast<int>(ResolveBatch(asked.batch).micro_batches)};
  const Job job = Narrowed(asked, extent);
  if (IsUsers(job)) options.stage_ranks = UsersStageRanks(job, extent, script);
  const UncutPlan uncut_plan(job, options, script);
  Plan plan = IsChosen(job) ? ChoosePlan(job, uncut_plan, extent, script)
                            : PlanNamed(job, uncut_plan, extent, script);
  CheckOwnR(job, plan, script);
  ApplyOwnRuns(job, options, script, plan);
  if (plan.memory > 0) {
    CheckMemory(job, plan, TrainingProgram(job, plan, extent.micro_batches, script));
  }
  return plan;
}

Plan RecutPlan(const Job& job, const Plan& plan, const std::vector<int>& bounds,
               std::shared_ptr<const ModelCosts> costs, Script* script) {
  Plan known = plan;
  if (costs) known.costs = std::move(costs);
  Job cut = job;
  cut.partition = {"cuts", bounds, {}};
  Plan next = UncutPlan(job, known, script).Cut(cut, plan.stage_ranks(), {});
  next.schedule = plan.schedule;
  FitRecomputation(job, script, next);
  CheckOwnR(job, next, script);
  if (plan.memory == 0) return next;
  CheckMemory(job, next,
              TrainingProgram(job, next, static_cast<int>(plan.batch.micro_batches), script));
  return next;
}

}  // namespace strata
