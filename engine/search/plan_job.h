// PlanJob(): the plan of a job, with the best of what the job leaves open.
#pragma once

#include <memory>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// MakePlan() with the stage map of the job's schedule, which a file or a function says itself:
/// a stage is on the rank whose row names it. Such a schedule has job.stages_per_rank stages per
/// rank where that is more than 1. With a memory limit the cuts know how many micro-batches the
/// schedule keeps alive, and what is predicted of the program must keep to it. recompute = "auto"
/// comes after the cuts, which take each stage to recompute nothing, its layers one by one, or all
/// of them at once: recompute_choice.h fits the program in. Where "auto" is the schedule too, each
/// named one on the plan's map, and the fastest of all, is fitted in; the best of them says what is
/// recomputed.
///
/// What is "auto" (partition, schedule, stages_per_rank) is what makes the simulated step shortest
/// by the seconds that the plan has (plan_seconds.h): all named schedules with up to four stages on
/// each rank, cut where the slowest stage is fastest, and where ranks of several stages are
/// balanced (rank_cuts.h), there with a program searched for these costs, too. Bounds are then
/// moved by one layer while that helps, each time with every schedule that is within 5 % of the
/// best, and last a program is searched for the best. Of nearly equal ways (kLeastSaving) the
/// simplest is taken, and of nearly equal plans (kNews) one that ran here before. Without a limit
/// none takes a tenth more memory than the simplest. Where no such cuts can be, for the memory or
/// for split layers, cuts by memory and by parameters are tried. All have their gradients in
/// ascending order. A notice says what was chosen and what it is worth. One stage costs no search.
///
/// Throws ConfigError as MakePlan() and TrainingProgram() do, and for a limit that is not kept.
Plan PlanJob(const Job& job, PlanOptions options, Script* script);

/// The plan with other cuts, for ranks that go on with it: every stage stays on its rank, and the
/// schedule is the same. `costs`: what layers are known to take by now; null: the plan's. Throws
/// ConfigError as PlanJob() does, for cuts that cannot be.
Plan RecutPlan(const Job& job, const Plan& plan, const std::vector<int>& bounds,
               std::shared_ptr<const ModelCosts> costs, Script* script);

}  // namespace strata
