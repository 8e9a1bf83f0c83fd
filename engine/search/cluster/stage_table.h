// StageTable: the cost of every run of neighbouring layers as one stage, for one micro-batch size,
// one model degree and one way of recomputing. It is all that a search knows about a network.
//
// Layers that are alike are folded: runs with the same kinds of layers in the same order share one
// entry, unless they hold the first or the last layer of the list. So a list of a thousand equal
// blocks needs some thousand entries, and not half a million. Runs are compared exactly, as suffix
// arrays do it: for each power of two every window of that length has a class, and a run is known
// by its length and the classes of the two windows that cover it. A look-up takes constant time;
// the classes take layers * log(layers) numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata::search {

/// A number for each layer, equal for layers that cost the same in any stage. `marks`: further
/// numbers in which layers may differ, one for each layer; may be empty.
std::vector<int> KindsOf(const ModelCosts& costs, const std::vector<int>& marks = {});

/// Costs are computed at their first use. Not thread-safe.
class StageTable {
 public:
  using Cost = std::function<StageCost(int begin, int end)>;

  /// `kinds`: KindsOf() the layers; empty: no two layers are alike. REQUIRES: 1 <= layers <=
  /// partition::kMaxItems.
  StageTable(int layers, Cost cost, const std::vector<int>& kinds = {});

  int layers() const { return layers_; }

  /// The cost of layers `begin` to `end`. The reference stays valid. REQUIRES: 0 <= begin < end <=
  /// layers().
  const StageCost& Of(int begin, int end) const;
  /// The cost of all layers as one stage.
  const StageCost& total() const { return Of(0, layers_); }

  /// The fewest bytes that cross between two layers; with one layer, those of its output.
  int64_t LeastOutput() const;
  /// The smallest share of a layer's seconds that delays the ranks after it: its forward, and
  /// unless backwards are split its backward.
  double LeastHeadShare(bool splits) const;

 private:
  uint64_t KeyOf(int begin, int end) const;

  const int layers_;
  const Cost cost_;
  /// By power of two: the class of the window of that length that begins at each layer.
  std::vector<std::vector<uint32_t>> classes_;
  mutable std::unordered_map<uint64_t, StageCost> known_;
  mutable int64_t least_output_ = -1;
  mutable double least_head_share_[2] = {-1, -1};
};

}  // namespace strata::search
