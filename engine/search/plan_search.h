// PlanSearch: finds the way to train with the shortest step that fits into the devices' memory.
//
// It searches pipe x data x model degrees, cuts, schedules, stages per rank, micro-batch sizes,
// recomputation and ZeRO together, for a fixed global batch: size = data * micro_batches *
// micro_batch_size. The search is best-first branch and bound. Every candidate has a lower bound of
// its step, a coarse one at first (without cuts) and a better one when its turn comes. The step is
// simulated (cluster_forecast.h) only if the bound is below the best steps found so far. So the
// result is the exact optimum of the space, except for networks with more than kAllCuts cuts. For
// those only two cuts are tried, the one with the fastest slowest stage and the one with the least
// lower bound, and then the bounds of the winners are moved while that helps (climb.h).
//
// Only three ways of recomputing are searched: nothing, each layer by itself, each stage as a
// whole. They are bounds: no choice takes less time than the first, and the others say before there
// are cuts or a program whether a candidate can fit at all. The choice layer by layer
// (recompute_choice.h) depends on the program and on the cuts, and takes as long as simulating some
// hundred steps. So SearchFor() (job_search.h) makes it for the winners only. It is worth much
// there: GPT-2 with 24 layers of width 1024, 16 micro-batches of 4, on 8 A100 has a step of 3.17 s
// in 8 GB with each layer recomputed, and of 2.82 s with chosen layers; 3.13 and 2.68 s in 12 GB.
//
// A search that has used up its effort gives the best so far, and says how much shorter a step can
// be at most that it has not looked at: the nodes that are left have lower bounds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/cluster_forecast.h"
#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// If a network has at most this many cuts into so many stages, all of them are tried.
inline constexpr double kAllCuts = 500;

/// The search space. An empty list allows all values.
struct Space {
  int64_t batch = 1;  ///< samples of a step over all replicas
  std::vector<int> pipe = {};
  std::vector<int> data = {};
  std::vector<int> model = {};
  std::vector<std::string> schedules = {};
  std::vector<int> stages_per_rank = {};  ///< all: 1, 2, 3, 4, 6, 8
  std::vector<int64_t> micro_batches = {};
  std::vector<int64_t> micro_batch_sizes = {};
  std::vector<Recompute> recompute = {};
  std::vector<int> zero = {0, 1, 2};
  std::vector<int> bounds = {};  ///< the only cuts to try; empty: all cuts
  double below = 0;              ///< find only steps shorter than this, in seconds; 0: any
};

struct FoundPlan {
  Candidate candidate;
  StepEvaluation forecast;
};

struct FoundPlans {
  /// The best plans, shortest step first, with one for each combination of degrees, so that they
  /// differ in more than a detail.
  std::vector<FoundPlan> best;
  int64_t considered = 0;     ///< candidates without their cuts
  int64_t bounded = 0;        ///< of these: those with cuts and a bound for them
  int64_t simulated = 0;      ///< simulated steps
  bool is_cut_short = false;  ///< the effort was used up before all candidates were looked at
  bool is_late = false;       ///< it was the limit of seconds that ended the search
  /// No step that was not looked at is shorter than the best by more than this share, except by
  /// cuts beside those that are tried. 1 if nothing was found.
  double missed = 0;
  /// The least memory per device, in bytes, among the candidates that did not fit; for some of them
  /// it is only a lower bound. 0: all fitted.
  double least_memory = 0;
};

/// What a search may spend (climb.h).
struct SearchLimits {
  int64_t actions = 100'000'000;  ///< that it may simulate; takes some ten seconds
  double seconds = 0;             ///< a second limit, for slow machines; 0 = none
  /// Called now and then, with the best so far in no order.
  std::function<void(const FoundPlans& so_far)> progress = {};
};

/// The `top` best candidates. They use at most all devices, and fewer if more do not help. The
/// result is the same on every machine, unless the limit of seconds ends the search. `best` is
/// empty if nothing fits into the memory, if the space is empty, or if the effort is used up before
/// anything is found. Throws ConfigError for a batch of 0.
FoundPlans SearchPlans(Network& network, const Cluster& cluster, const Space& space, int top = 5,
                       const SearchLimits& limits = {});

}  // namespace strata::search
