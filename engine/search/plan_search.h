// PlanSearch: the way to train with the shortest step that fits the devices' memory.
//
// Looks at pipe x data x model degrees, cuts, schedules, stages per rank, micro-batch sizes,
// recomputation and ZeRO, together. The global batch stays what it is: size = data * micro_batches
// * micro_batch_size. Best first: every way has a bound that its step cannot be below, coarse ones
// at first (without cuts), better ones when its turn comes; the step is simulated
// (cluster_forecast.h) only for those whose bound is below the best steps found so far. So the
// result is the best of the space, exactly, but for the cuts of networks with more than kAllCuts of
// them: there two cuts are tried, of the least slowest stage and of the least bound, and bounds of
// the winners are moved while that helps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/cluster_forecast.h"
#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// Cuts of a network in so many stages that are all tried.
inline constexpr double kAllCuts = 500;

/// What is searched. A list that is empty stands for all that there are.
struct Space {
  int64_t batch = 1;  ///< samples of a step, over all replicas
  std::vector<int> pipe = {};
  std::vector<int> data = {};
  std::vector<int> model = {};
  std::vector<std::string> schedules = {};
  std::vector<int> stages_per_rank = {};  ///< all: 1, 2, 3, 4, 6, 8
  std::vector<int64_t> micro_batches = {};
  std::vector<int64_t> micro_batch_sizes = {};
  std::vector<Recompute> recompute = {};
  std::vector<int> zero = {0, 1};
  std::vector<int> bounds = {};  ///< empty: all cuts
  double below = 0;              ///< only steps shorter than this, in seconds; 0: any
};

struct FoundPlan {
  Candidate candidate;
  ClusterForecast forecast;
};

struct FoundPlans {
  /// The shortest step first; one for each combination of degrees, so that they differ in more than
  /// a detail.
  std::vector<FoundPlan> best;
  int64_t considered = 0;  ///< ways, cuts not counted
  int64_t bounded = 0;     ///< of them: cut, and bounded with the cut
  int64_t simulated = 0;   ///< steps
  /// No way of the space fits less memory per device; of those that did not fit. 0: all fitted.
  double least_memory = 0;
};

/// The `top` best ways. Uses at most all devices, and fewer where more do not help. The same answer
/// on every machine. Nothing in `best`: no way fits the memory, or the space is empty. Throws
/// ConfigError: a batch of 0; more layers than StageTable::kMaxLayers.
FoundPlans SearchPlans(Network& network, const Cluster& cluster, const Space& space, int top = 5);

}  // namespace strata::search
