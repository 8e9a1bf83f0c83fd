#include "engine/predict/save_copy.h"

#include <algorithm>

namespace strata {
namespace {

int64_t HalfPrecisionBytes(const Plan& plan, const ModelCosts& costs, int rank) {
  int64_t bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.rank != rank) continue;
    for (int layer = stage.begin; layer < stage.end; ++layer) {
      bytes += costs.layers[layer].copy_bytes;
    }
  }
  return bytes;
}

}  // namespace

int64_t SaveCopyBytes(const Plan& plan, const StepForecast& step) {
  int64_t most = 0;
  for (const RankMemory& rank : step.memory) {
    const int64_t halves = HalfPrecisionBytes(plan, step.costs, rank.rank);
    most = std::max(most, rank.weights + rank.optimizer - halves);
  }
  return most;
}

}  // namespace strata
