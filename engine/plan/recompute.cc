#include "engine/plan/recompute.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/select.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

/// True if place `i` holds a part of the same layer as the place before it, on the same stage. Such
/// parts count as one layer for the job's `recompute`.
bool GoesOn(const Plan& plan, int i) {
  return PartNumber(plan.layers[i].type) > 0 && plan.layers[i - 1].stage == plan.layers[i].stage;
}

/// Sets segments of at most `size` layers each on one stage.
void CutStage(const StagePlan& stage, int size, int& next, Plan& plan) {
  int layers = 0;
  for (int i = stage.begin; i < stage.end; ++i) {
    if (!GoesOn(plan, i) && layers++ % size == 0) ++next;
    plan.layers[i].segment = next - 1;
  }
}

}  // namespace

bool IsChosen(const Job& job, const Plan& plan, int place, int stage, Script& script) {
  const FunctionRef& function = job.recompute.function;
  const LayerPlan& layer = plan.layers[place];
  int64_t parameters = layer.parameters;
  for (int i = place + 1; i < static_cast<int>(plan.layers.size()) && GoesOn(plan, i); ++i) {
    parameters += plan.layers[i].parameters;
  }
  const bool is_part = PartNumber(layer.type) >= 0;
  const std::string type = is_part ? layer.type.substr(0, layer.type.find('.')) : layer.type;
  Value argument;
  argument.Set("index", LayerNumber(job.layers, layer.index)).Set("type", type);
  argument.Set("name", LayerPath(job.layers[static_cast<size_t>(layer.index)], layer.index));
  argument.Set("parameters", parameters).Set("stage", stage);
  const Value chosen = script.Call(function, {std::move(argument)});
  if (chosen.is_null()) return false;
  if (chosen.is_bool()) return chosen.as_bool();
  throw ConfigError(Str(function.where, ": the recompute function's result for layer ",
                        LayerNumber(job.layers, layer.index), " must be true or false, not ",
                        chosen.Describe()));
}

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
        plan.layers[i].segment = GoesOn(plan, i) ? plan.layers[i - 1].segment : next++;
      }
      return;
    case Method::kFunction:
      STRATA_CHECK(script != nullptr) << "a recompute function without its script";
      for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
        LayerPlan& layer = plan.layers[i];
        if (GoesOn(plan, i)) {
          layer.segment = plan.layers[i - 1].segment;
        } else if (IsChosen(job, plan, i, layer.stage, *script)) {
          layer.segment = next++;
        }
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
