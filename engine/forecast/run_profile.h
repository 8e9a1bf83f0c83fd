// The profile of a run: what the layers of a training take, from what its stages were measured to
// take. Nothing is measured here.
//
// Single layers cannot be timed in a backward that autograd runs. So a stage's seconds are shared
// out among its layers as predicted. Layers that are alike should take the same wherever they are:
// what one stage takes beyond that is rather due to the layers that it alone has, and what this
// does not explain is shared by all layers of the stage.
#pragma once

#include <vector>

#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// Whether the steps of the training tell what its layers take: not where nothing is to be measured
/// (rebalance = false), on GPUs, where the host does not see what stages take, where ranks share
/// layers and wait for each other inside of them, and where no costs of this machine are known.
bool TellsOfLayers(const Job& job, const Plan& plan);

/// What the costs say that the stages of the plan take.
std::vector<StageSeconds> ExpectedStages(const ModelCosts& costs, const Plan& plan);

/// What is measured against what was expected; where nothing was, nothing is learnt.
double Ratio(double measured, double expected);
/// That of each stage.
std::vector<StageSeconds> Ratios(const std::vector<StageSeconds>& measured, const ModelCosts& costs,
                                 const Plan& plan);
void Scale(const StageSeconds& by, LayerCost& cost);

/// `step`: of this plan. What it does not tell is as the plan's costs say. What a step takes beyond
/// what its layers do is shared by its actions (Profile::action), so that a step of the same plan
/// is predicted to take as long. `program`: the plan's, lowered. REQUIRES: TellsOfLayers().
Profile ProfileOfRun(const Job& job, const Plan& plan, const MeasuredStep& step,
                     const schedule::Program& program);

}  // namespace strata
