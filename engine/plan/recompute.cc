#include "engine/plan/recompute.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/job/select.h"

namespace strata {
namespace {

bool Chooses(const FunctionRef& function, const LayerPlan& layer, Script& script) {
  Value argument;
  argument.Set("index", layer.index).Set("type", layer.type).Set("name", layer.path);
  argument.Set("parameters", layer.parameters).Set("stage", layer.stage);
  const Value chosen = script.Call(function, {std::move(argument)});
  if (chosen.is_null()) return false;
  if (chosen.is_bool()) return chosen.as_bool();
  throw ConfigError(Str(function.where, ": the recompute function's result for layer ", layer.index,
                        " must be true or false, not ", chosen.Describe()));
}

/// Segments of at most `size` layers of one stage.
void CutStage(const StagePlan& stage, int size, int& next, Plan& plan) {
  for (int i = stage.begin; i < stage.end; ++i) {
    const bool is_first = (i - stage.begin) % size == 0;
    if (is_first) ++next;
    plan.layers[i].segment = next - 1;
  }
}

}  // namespace

void PlanSegments(const Job& job, Script* script, Plan& plan) {
  using Method = RecomputeSpec::Method;
  const RecomputeSpec& spec = job.recompute;
  int next = 0;
  switch (spec.method) {
    case Method::kNone:
    case Method::kAuto:
      return;
    case Method::kStages:
    case Method::kEvery:
      for (const StagePlan& stage : plan.stages) {
        const bool is_whole = spec.method == Method::kStages;
        CutStage(stage, is_whole ? stage.end - stage.begin : spec.every, next, plan);
      }
      return;
    case Method::kLayers:
      for (int i : SelectLayers(spec.layers, job.layers, "recompute")) {
        plan.layers[i].segment = next++;
      }
      return;
    case Method::kFunction:
      STRATA_CHECK(script != nullptr) << "a recompute function without its script";
      for (LayerPlan& layer : plan.layers) {
        if (Chooses(spec.function, layer, *script)) layer.segment = next++;
      }
      return;
  }
}

std::vector<int> RecomputedStages(const Plan& plan) {
  std::vector<int> stages;
  for (const LayerPlan& layer : plan.layers) {
    const bool is_new = stages.empty() || stages.back() != layer.stage;
    if (layer.segment >= 0 && is_new) stages.push_back(layer.stage);
  }
  return stages;
}

}  // namespace strata
