#include "engine/search/cut_evaluator.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/forecast/planned_program.h"
#include "engine/layers/parts.h"
#include "engine/plan/recompute.h"

namespace strata {
namespace {

using Method = RecomputeSpec::Method;

/// KindsOf() the layers. Layers that are chosen by number differ all.
std::vector<int> Kinds(const Job& job, const Plan& plan) {
  if (job.recompute.method == Method::kLayers) return {};
  std::vector<int> marks;
  for (const LayerPlan& layer : plan.layers) marks.push_back(PartNumber(layer.type) > 0);
  return search::KindsOf(*plan.costs, marks);
}

}  // namespace

CutEvaluator::CutEvaluator(const Job& job, const Plan& plan, Script* script)
    : job_(job), plan_(plan), script_(script), crossing_(MessageBytes(*plan.costs)) {
  STRATA_CHECK(plan.costs->has_seconds() && job.recompute.method != Method::kAuto);
  if (job.recompute.method == Method::kFunction) return;
  table_.emplace(
      static_cast<int>(plan.layers.size()),
      [this](int begin, int end) { return CostOf(begin, end); }, Kinds(job, plan));
}

StepEvaluation CutEvaluator::Of(const std::vector<int>& bounds, const std::vector<int>& stage_ranks,
                                const std::string& schedule) {
  PlaceAt(bounds, stage_ranks);
  plan_.schedule = schedule;
  std::unique_ptr<Evaluator>& evaluator =
      evaluators_[Key(stage_ranks, schedule, RecomputedStages(plan_))];
  if (!evaluator) {
    const auto micro_batches = static_cast<int>(plan_.batch.micro_batches);
    evaluator = std::make_unique<Evaluator>(TrainingProgram(job_, plan_, micro_batches, script_));
  }
  return evaluator->Of(PlacedHere(job_, plan_, *plan_.costs, Stages(), LinksOfStages(plan_)));
}

void CutEvaluator::PlaceAt(const std::vector<int>& bounds, const std::vector<int>& stage_ranks) {
  plan_.bounds = bounds;
  const TensorSpecs input = std::move(plan_.stages.front().input);
  const TensorSpecs output = std::move(plan_.stages.back().output);
  plan_.stages.clear();
  for (int s = 0; s + 1 < static_cast<int>(bounds.size()); ++s) {
    StagePlan& stage = plan_.stages.emplace_back();
    stage.stage = s;
    stage.rank = stage_ranks[s];
    stage.begin = bounds[s];
    stage.end = bounds[s + 1];
    for (int i = stage.begin; i < stage.end; ++i) plan_.layers[i].stage = s;
  }
  plan_.stages.front().input = input;
  plan_.stages.back().output = output;
  for (TiePlan& tie : plan_.ties) {
    for (size_t use = 0; use < tie.layers.size(); ++use) {
      tie.stages[use] = plan_.layers[tie.layers[use]].stage;
    }
  }
  if (job_.recompute.method == Method::kNone) return;
  for (LayerPlan& layer : plan_.layers) layer.segment = -1;
  PlanSegments(job_, script_, plan_);
}

/// The cost of a stage of the cuts at hand.
StageCost CutEvaluator::CostOf(int begin, int end) const {
  return SumLayers(*plan_.costs, begin, end, plan_.segments());
}

std::vector<StageCost> CutEvaluator::Stages() const {
  std::vector<StageCost> stages;
  for (const StagePlan& stage : plan_.stages) {
    stages.push_back(table_ ? table_->Of(stage.begin, stage.end) : CostOf(stage.begin, stage.end));
  }
  return stages;
}

}  // namespace strata
