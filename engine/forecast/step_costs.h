// StepCosts: from what layers cost to what the simulator takes.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/simulator.h"

namespace strata {

/// How fast the ranks of a stage are connected; of several replicas the slowest counts.
struct StageLinks {
  LinkRates next;  ///< to those of the next stage, and back
  LinkRates data;  ///< with each other, between the replicas
};

/// Of a machine that nobody measured.
LinkRates NominalLink(const std::string& device);
/// Of every stage: what the job's file says of each two ranks, else what was measured between two
/// processes of this machine, else stated ones. Threads need none.
std::vector<StageLinks> LinksOfStages(const Plan& plan);

/// Costs of no stages: lists that are to have an entry per stage.
schedule::Costs NoCosts();

/// A stage's compute, which takes `factor` times as long.
void AddCompute(const StageCost& stage, double factor, schedule::Costs& costs);

/// The messages out of a stage and back to it, over a link that is slower by `factor`.
void AddMessage(const LinkRates& link, const StageCost& stage, double factor,
                schedule::Costs& costs);

/// The seconds of each stage's actions, of the messages between stages and of the reduction over
/// the replicas, norm included. Backward is I + W; R is as long as the forward of the recomputed
/// layers. `links`: of every stage; empty: messages take no time. All ranks wait for each other
/// once a step, when all numbers of the step are summed, before the update. So the update, with
/// which the next step begins, and the zeroing of the gradients are `begin`; and a simulated
/// makespan of the lowered program is the time from step to step. With measured costs
/// of a CPU each action takes ModelCosts::action_seconds more. REQUIRES: the seconds of `costs` are
/// set.
schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const std::vector<StageLinks>& links = {});

}  // namespace strata
