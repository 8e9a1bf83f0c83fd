// PlanJob(): plans a job and chooses the best for what the job leaves open.
#pragma once

#include <memory>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// Plans a job: MakePlan() with the stage map of the job's schedule. A schedule from a file or a
/// function gives the map itself: a stage is on the rank whose row names it; it has
/// job.stages_per_rank stages per rank if that is more than 1. With a memory limit the cuts take
/// into account how many micro-batches the schedule keeps alive, and the predicted memory of the
/// program must be within the limit. recompute = "auto" is chosen after the cuts; the cuts assume
/// that each stage recomputes nothing, its layers one by one, or all of them at once.
/// recompute_choice.h then fits the program into the limit. If the schedule is "auto" too, each
/// named schedule on the plan's map, and the fastest program of all, is fitted, and the best of
/// them determines what is recomputed.
///
/// For keys that are "auto" (partition, schedule, stages_per_rank) the choice is the one with the
/// shortest simulated step, by the plan's seconds (plan_seconds.h). All named schedules are tried
/// with up to four stages on each rank, with the cuts whose slowest stage is fastest, and with cuts
/// that balance ranks of several stages (rank_cuts.h), there also with a program that is searched
/// for these costs. Then bounds are moved while that helps (climb.h), each time with every schedule
/// within 5 % of the best, and last a program is searched for the best plan. Of nearly
/// equal choices (kLeastSaving) the simplest wins, and of nearly equal plans (kNews) one that ran
/// here before. Without a memory limit no choice may take a tenth more memory than the simplest. If
/// such cuts are impossible because of the memory or of split layers, cuts by memory and by
/// parameters are tried. All plans accumulate gradients in ascending order of micro-batches. A
/// notice says what was chosen and what it gains. A single stage needs no search.
///
/// Throws ConfigError as MakePlan() and TrainingProgram() do, and if the memory limit is exceeded.
Plan PlanJob(const Job& job, PlanOptions options, Script* script);

/// The plan with other cuts, for a training that continues with it: every stage stays on its rank,
/// and the schedule is the same. `costs`: the latest known costs of the layers; null: the plan's.
/// Throws ConfigError as PlanJob() does, for impossible cuts.
Plan RecutPlan(const Job& job, const Plan& plan, const std::vector<int>& bounds,
               std::shared_ptr<const ModelCosts> costs, Script* script);

}  // namespace strata
