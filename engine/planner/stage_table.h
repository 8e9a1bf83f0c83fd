// StageTable: what every run of neighbouring layers takes as one stage, for one micro-batch size,
// one model degree and one way of recomputing. The planner's only view of a network.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace strata::planner {

/// Layers as one stage on one rank, for one micro-batch. Seconds and bytes.
struct StageLoad {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  double recompute = 0;  ///< R; 0 where nothing is recomputed

  double parameters = 0;  ///< trainable elements
  double weights = 0;     ///< bytes that live from step to step, beside gradients and optimizer
  double gradients = 0;   ///< bytes
  double output = 0;      ///< bytes that leave for the next stage, and come back as gradients
  double axis = 0;        ///< bytes that the rank sends to those of its model axis, in all passes

  double kept = 0;           ///< bytes, from F until B or I
  double deferred = 0;       ///< from I until W
  double recomputed = 0;     ///< what R adds until B or I
  double forward_peak = 0;   ///< at the highest in F, what it keeps included
  double backward_peak = 0;  ///< in B or I, what is kept and recomputed included

  double backward() const { return input_grad + weight_grad; }
  double seconds() const { return forward + input_grad + weight_grad + recompute; }
};

/// All runs of `layers` layers, each computed when it is first asked for. Not for several threads
/// at a time.
class StageTable {
 public:
  using Load = std::function<StageLoad(int begin, int end)>;

  /// The most layers that are accepted: a table takes 60 bytes for each pair of them.
  static constexpr int kMaxLayers = 1024;

  /// `load` is asked at most once for each pair begin < end. REQUIRES: 1 <= layers <= kMaxLayers.
  StageTable(int layers, Load load) : load_(std::move(load)), rows_(static_cast<size_t>(layers)) {
    STRATA_CHECK(layers >= 1 && layers <= kMaxLayers) << layers;
  }

  int layers() const { return static_cast<int>(rows_.size()); }

  /// REQUIRES: 0 <= begin < end <= layers(). Stays where it is.
  const StageLoad& Of(int begin, int end) const {
    std::vector<StageLoad>& row = rows_[static_cast<size_t>(begin)];
    if (row.empty()) row.resize(rows_.size() - static_cast<size_t>(begin), kUnknown);
    StageLoad& load = row[static_cast<size_t>(end - begin) - 1];
    if (load.forward < 0) load = load_(begin, end);
    return load;
  }

  /// By begin, of the runs that end there: the least seconds of those which begin there or before.
  const std::vector<double>& LeastSeconds(int end) const {
    if (least_.empty()) FindLeast();
    return least_[static_cast<size_t>(end) - 1];
  }

  /// All layers as one stage.
  const StageLoad& total() const { return Of(0, layers()); }

 private:
  static constexpr StageLoad kUnknown{.forward = -1};

  void FindLeast() const {
    for (int end = 1; end <= layers(); ++end) {
      std::vector<double>& least = least_.emplace_back();
      for (int begin = 0; begin < end; ++begin) {
        const double seconds = Of(begin, end).seconds();
        least.push_back(least.empty() ? seconds : std::min(least.back(), seconds));
      }
    }
  }

  Load load_;
  mutable std::vector<std::vector<double>> least_;
  mutable std::vector<std::vector<StageLoad>> rows_;  // by begin and length - 1
};

}  // namespace strata::planner
