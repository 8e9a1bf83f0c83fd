#include "engine/plan/joining.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// The share above which joining is not worth its memory.
constexpr double kMostShare = 0.95;
constexpr int64_t kCachedBytes = 8 << 20;
constexpr int64_t kFewRows = 40;

/// What a weight gradient of so many rows takes, in rows that are multiplied.
double Taken(const LayerCost& layer, int64_t rows) {
  const auto multiplied = static_cast<double>(rows);
  if (layer.gradient_bytes <= kCachedBytes) return 14 + multiplied;
  return (rows <= kFewRows ? 36 : 118) + multiplied;
}

bool Gains(const LayerCost& layer, int64_t micro_batches, int joined) {
  const int64_t rows = layer.product_rows;
  return joined > 1 && rows > 0 && rows * joined <= kMostJoinedRows &&
         JoinedShare(layer, micro_batches, joined) <= kMostShare;
}

/// Chooses for layers of one stage.
class Chooser {
 public:
  Chooser(const ModelCosts& costs, const StagePlan& stage, int64_t micro_batches)
      : layers_(costs.layers.begin() + stage.begin, costs.layers.begin() + stage.end),
        micro_batches_(micro_batches) {}

  int Best(int most) const {
    int best = 1;
    for (int joined = 2; joined <= std::min<int64_t>({most, micro_batches_, kMostJoinedRows});
         ++joined) {
      if (Time(joined) < Time(best)) best = joined;
    }
    return best;
  }

 private:
  /// Of all products of rows, each as often as there are micro-batches.
  double Time(int joined) const {
    double time = 0;
    for (const LayerCost& layer : layers_) {
      if (layer.product_rows == 0) continue;
      const double alone =
          static_cast<double>(layer.gradient_bytes) * Taken(layer, layer.product_rows);
      const bool gains = Gains(layer, micro_batches_, joined);
      time += alone * (gains ? JoinedShare(layer, micro_batches_, joined) : 1);
    }
    return time;
  }

  const std::vector<LayerCost> layers_;
  const int64_t micro_batches_;
};

void SetJoining(const ModelCosts& costs, int joined, StagePlan& stage, Plan& plan) {
  stage.joined = joined;
  for (int i = stage.begin; i < stage.end; ++i) {
    const auto layer = static_cast<size_t>(i);
    plan.layers[layer].is_joined =
        Gains(costs.layers[layer], plan.batch.micro_batches, stage.joined);
  }
}

}  // namespace

void PlanJoining(const ModelCosts& costs, Plan& plan) {
  STRATA_CHECK(costs.layers.size() == plan.layers.size()) << costs.layers.size();
  for (const StagePlan& stage : plan.stages) {
    LimitJoining(costs, stage.stage, static_cast<int>(kMostJoinedRows), plan);
  }
  const std::vector<int> joined = plan.joined();
  if (std::ranges::any_of(joined, [](int count) { return count > 1; })) return;
  plan.notices.push_back(
      plan.batch.micro_batches == 1
          ? "join = true changes nothing: there is one micro-batch"
          : Str("join = true changes nothing: no layer that learns multiplies so few rows of a ",
                "micro-batch by its weights that joined ones would be faster"));
}

void LimitJoining(const ModelCosts& costs, int stage, int most, Plan& plan) {
  StagePlan& place = plan.stages[stage];
  const Chooser chooser(costs, place, plan.batch.micro_batches);
  SetJoining(costs, chooser.Best(most), place, plan);
}

Plan Unjoined(Plan plan) {
  for (StagePlan& stage : plan.stages) stage.joined = 1;
  for (LayerPlan& layer : plan.layers) layer.is_joined = false;
  return plan;
}

ModelCosts BestJoined(ModelCosts costs, int64_t micro_batches) {
  for (LayerCost& layer : costs.layers) {
    if (layer.product_rows == 0) continue;
    double least = 1;
    const int64_t most = std::min(micro_batches, kMostJoinedRows);
    for (int joined = 2; joined <= most && layer.product_rows * joined <= kMostJoinedRows;
         ++joined) {
      const double share = JoinedShare(layer, micro_batches, joined);
      if (share <= kMostShare) least = std::min(least, share);
    }
    layer.weight_grad.seconds *= least;
  }
  return costs;
}

double JoinedShare(const LayerCost& layer, int64_t micro_batches, int joined) {
  const int64_t groups = (micro_batches + joined - 1) / joined;
  const int64_t size = micro_batches / groups, larger = micro_batches % groups;
  const int64_t rows = layer.product_rows;
  const double together =
      static_cast<double>(groups - larger) * Taken(layer, size * rows) +
      (larger > 0 ? static_cast<double>(larger) * Taken(layer, (size + 1) * rows) : 0);
  return together / (static_cast<double>(micro_batches) * Taken(layer, rows));
}

}  // namespace strata
