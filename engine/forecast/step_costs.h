// StepCosts: converts the costs of layers into the costs that the simulator takes.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/simulator.h"

namespace strata {

/// The links of a stage's ranks; of several replicas the slowest link counts.
struct StageLinks {
  LinkRates next;  ///< to the ranks of the next stage, and back
  LinkRates data;  ///< between the replicas of the stage
};

/// The link rates of a machine that was not measured.
LinkRates NominalLink(const std::string& device);
/// The links of every stage: from the job's file of measured links, else as measured between two
/// processes of this machine, else stated rates. With the transport "threads" messages take no
/// time.
std::vector<StageLinks> LinksOfStages(const Plan& plan);

/// Costs of zero stages, with the lists that need one entry per stage.
schedule::Costs NoCosts();

/// Appends the compute of a stage, which takes `factor` times as long.
void AddCompute(const StageCost& stage, double factor, schedule::Costs& costs);

/// Appends the messages between a stage and the next one, over a link that is slower by `factor`.
void AddMessage(const LinkRates& link, const StageCost& stage, double factor,
                schedule::Costs& costs);

/// The seconds of each stage's actions on its rank (Plan::slowness), of the messages between stages
/// and of the reduction over the replicas, which includes the norm. Backward is I + W; R takes as
/// long as the forward of the recomputed layers. `links`: of every stage; if empty, messages take
/// no time. All ranks wait for each other once in a step, before the update, when the step's
/// numbers are summed. The update, which starts the next step, and the zeroing of the gradients are
/// therefore the costs `begin`, and the simulated makespan of the lowered program is the time from
/// step to step. With measured costs of a CPU each action takes ModelCosts::action_seconds more.
/// REQUIRES: the seconds of `costs` are set.
schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const std::vector<StageLinks>& links = {});
/// The same with the costs of the stages (StageCosts()) given.
schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const std::vector<StageCost>& stages,
                          const std::vector<StageLinks>& links);

}  // namespace strata
