// StageTable: the cost of every run of neighbouring layers as one stage, for one micro-batch size,
// one model degree and one way of recomputing. It is all that the planner knows about a network.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/cost/layer_costs.h"

namespace strata::search {

/// The costs of all runs of `layers` layers as one stage; each is computed at its first use. Not
/// thread-safe.
class StageTable {
 public:
  using Cost = std::function<StageCost(int begin, int end)>;

  /// The largest number of layers: a table takes 264 bytes for each pair of layers.
  static constexpr int kMaxLayers = 1024;

  /// `cost` is called at most once for each pair begin < end. REQUIRES: 1 <= layers <= kMaxLayers.
  StageTable(int layers, Cost cost) : cost_(std::move(cost)), rows_(static_cast<size_t>(layers)) {
    STRATA_CHECK(layers >= 1 && layers <= kMaxLayers) << layers;
  }

  int layers() const { return static_cast<int>(rows_.size()); }

  /// The cost of layers `begin` to `end`. The reference stays valid. REQUIRES: 0 <= begin < end <=
  /// layers().
  const StageCost& Of(int begin, int end) const {
    std::vector<StageCost>& row = rows_[begin];
    if (row.empty()) row.resize(rows_.size() - static_cast<size_t>(begin), Unknown());
    StageCost& cost = row[end - begin - 1];
    if (cost.forward.seconds < 0) cost = cost_(begin, end);
    return cost;
  }

  /// The smallest seconds of all runs that begin at `begin` and end at `end` or later.
  double LeastSeconds(int begin, int end) const {
    if (least_.empty()) FindLeast();
    return least_[begin][end - begin - 1];
  }

  /// The cost of all layers as one stage.
  const StageCost& total() const { return Of(0, layers()); }

 private:
  static StageCost Unknown() {
    StageCost cost;
    cost.forward.seconds = -1;
    return cost;
  }

  void FindLeast() const {
    for (int begin = 0; begin < layers(); ++begin) {
      std::vector<double>& least = least_.emplace_back();
      for (int end = begin + 1; end <= layers(); ++end) least.push_back(Of(begin, end).seconds());
      for (size_t i = least.size() - 1; i-- > 0;) least[i] = std::min(least[i], least[i + 1]);
    }
  }

  Cost cost_;
  mutable std::vector<std::vector<double>> least_;
  // Indexed by begin and length - 1; negative seconds mean that the cost is not computed yet.
  mutable std::vector<std::vector<StageCost>> rows_;
};

}  // namespace strata::search
