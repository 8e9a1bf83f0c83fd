// Shared helpers of the planner's tests: networks defined by plain numbers.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/search/plan_search.h"

namespace strata::search::testing {

/// One layer: seconds and bytes of a micro-batch with one sample. A micro-batch of n samples takes
/// n times as much, but `launch` only once.
struct Numbers {
  double forward = 1, input_grad = 1, weight_grad = 1;
  double launch = 0;
  double parameters = 0;  ///< 4 bytes each, and 4 more for the gradient
  double kept = 0;        ///< bytes
  double output = 0;      ///< bytes

  bool operator==(const Numbers&) const = default;
};

/// Rounds up to whole bytes.
inline int64_t Whole(double bytes) { return static_cast<int64_t>(std::ceil(bytes)); }

inline StageCost CostOf(const std::vector<Numbers>& layers, int begin, int end, double size,
                        int model, Recompute recompute) {
  StageCost cost;
  int64_t largest = 0;
  for (int i = begin; i < end; ++i) {
    const Numbers& layer = layers[i];
    cost.forward.seconds += layer.forward * size / model + layer.launch;
    if (i > 0) cost.input_grad.seconds += layer.input_grad * size / model;
    cost.weight_grad.seconds += layer.weight_grad * size / model;
    cost.parameters += Whole(layer.parameters / model);
    cost.kept_bytes += Whole(layer.kept * size);
    largest = std::max(largest, Whole(layer.kept * size));
  }
  cost.weight_bytes = cost.gradient_bytes = 4 * cost.parameters;
  cost.output_bytes = Whole(layers[end - 1].output * size);
  if (recompute != Recompute::kNone) {
    cost.recompute = cost.forward;
    const int64_t all = cost.kept_bytes;
    const bool by_layer = recompute == Recompute::kLayers;
    cost.kept_bytes = by_layer ? all / 4 : all / 8;
    cost.recomputed_bytes = by_layer ? largest : all;
  }
  cost.forward_peak = cost.kept_bytes;
  cost.backward_peak = cost.kept_bytes + cost.recomputed_bytes;
  return cost;
}

class NumbersNetwork : public Network {
 public:
  explicit NumbersNetwork(std::vector<Numbers> layers, Training training = {})
      : layers_(std::move(layers)), training_(training) {}

  int layers() const override { return static_cast<int>(layers_.size()); }
  Training training() const override { return training_; }
  std::shared_ptr<const StageTable> Table(int64_t size, int model, Recompute recompute) override {
    auto& table = tables_[{size, model, recompute}];
    if (table == nullptr) {
      std::vector<int> kinds;  // the first layer that is alike
      for (const Numbers& layer : layers_) {
        kinds.push_back(static_cast<int>(std::ranges::find(layers_, layer) - layers_.begin()));
      }
      const auto cost = [=, this](int begin, int end) {
        return CostOf(layers_, begin, end, static_cast<double>(size), model, recompute);
      };
      table = std::make_shared<StageTable>(layers(), cost, kinds);
    }
    return table;
  }

 private:
  const std::vector<Numbers> layers_;
  const Training training_;
  std::map<std::tuple<int64_t, int, Recompute>, std::shared_ptr<StageTable>> tables_;
};

/// Random layers with whole numbers, so that sums are exact.
inline std::vector<Numbers> AnyLayers(int least, int most) {
  std::vector<Numbers> layers(static_cast<size_t>(*rc::gen::inRange(least, most + 1)));
  for (Numbers& layer : layers) {
    layer = {.forward = static_cast<double>(*rc::gen::inRange(0, 20)),
             .input_grad = static_cast<double>(*rc::gen::inRange(0, 20)),
             .weight_grad = static_cast<double>(*rc::gen::inRange(0, 20)),
             .launch = static_cast<double>(*rc::gen::inRange(0, 4)),
             .parameters = static_cast<double>(*rc::gen::inRange(0, 50)),
             .kept = static_cast<double>(*rc::gen::inRange(0, 50)),
             .output = static_cast<double>(*rc::gen::inRange(0, 30))};
  }
  return layers;
}

/// A cluster of nodes whose devices have `memory` bytes.
inline Cluster MakeDevices(int nodes, int devices_per_node, double memory) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = devices_per_node;
  cluster.device.memory = memory;
  cluster.device.flops = {{"float32", 1e12}};
  return cluster;
}

/// The step of a candidate on a cluster.
inline StepEvaluation StepOf(const Candidate& candidate, const StageTable& table,
                             const Training& training, const Cluster& cluster,
                             const Slowness& slowness = {}) {
  const schedule::Program program = ProgramOf(candidate);
  return Evaluate(PlacedOn(candidate, table, training, cluster, program.stage_ranks, slowness),
                  program);
}

}  // namespace strata::search::testing
