// Computes the profile of a run: the seconds of a training's layers, from the measured seconds of
// its stages. Nothing is measured here.
//
// Single layers cannot be timed in a backward that autograd runs. So a stage's seconds are shared
// out among its layers in proportion to the prediction. Layers of the same kind should take the
// same time on every stage. So a difference between stages is first attributed to the kinds of
// layers that only one of them has; what remains is shared by all layers of the stage.
#pragma once

#include <vector>

#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// True if the steps of the training tell the seconds of its layers. False if nothing is to be
/// measured (rebalance = false), on GPUs (the host cannot time the stages), if ranks share layers
/// (they wait for each other inside them), and if no costs measured on this machine are known.
bool TellsOfLayers(const Job& job, const Plan& plan);

/// The seconds of the plan's stages as the costs predict them.
std::vector<StageSeconds> ExpectedStages(const ModelCosts& costs, const Plan& plan);

/// Measured divided by expected seconds; 1 if one of them is not known.
double Ratio(double measured, double expected);
/// The ratio of each stage.
std::vector<StageSeconds> Ratios(const std::vector<StageSeconds>& measured, const ModelCosts& costs,
                                 const Plan& plan);
void Scale(const StageSeconds& by, LayerCost& cost);

/// The profile of a run. `step`: measured with this plan. What it does not contain is taken from
/// the plan's costs. Time of the step beyond the layers' is divided among its actions
/// (Profile::action), so that the prediction for the same plan equals the measurement. `program`:
/// the plan's, lowered. REQUIRES: TellsOfLayers().
Profile ProfileOfRun(const Job& job, const Plan& plan, const MeasuredStep& step,
                     const schedule::Program& program);

}  // namespace strata
