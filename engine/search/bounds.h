// Bounds: what a step takes at least, and a rank holds at least, without simulating. The search
// (plan_search.h) leaves out what these already rule out.
#pragma once

#include <vector>

#include "engine/search/cluster/prediction.h"

namespace strata::predict {

/// Seconds that a message between neighbouring stages takes at least, wherever the network is cut.
double MessageAtLeast(const Choice& choice, const StageTable& table, const Cluster& cluster);

/// The least step of all cuts. Each rank has its share of the work. A micro-batch has its way there
/// and back. Ranks wait for their first input, and at the end for the ranks before them.
double StepAtLeast(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster);

/// The least step of each of many cuts of one choice, messages and reductions included. The
/// choice's own bounds are ignored.
class CutStep {
 public:
  /// Keeps references to all of them.
  CutStep(const Choice& choice, const StageTable& table, const Training& training,
          const Cluster& cluster);
  double AtLeast(const std::vector<int>& bounds);

 private:
  struct Rank {
    Group replicas;
    double work = 0, reduce = 0, update = 0, head = -1, drain = 0;
  };

  const Choice& choice_;
  const StageTable& table_;
  const Training& training_;
  const bool splits_;
  const std::vector<int> stage_ranks_;
  std::vector<LinkRates> links_;  ///< behind each stage
  std::vector<Rank> ranks_;
};

/// How many micro-batches of each stage are alive (from F to B or I) at the moment when the stage's
/// rank has the most of them; for some schedules a few less where there are many micro-batches.
std::vector<int> LiveAtLeast(const Choice& choice);

/// Bytes of the fullest rank, for any cut.
double MemoryAtLeast(const Choice& choice, const StageTable& table, const Training& training);
/// For the choice's cut. `live`: LiveAtLeast().
double CutMemoryAtLeast(const Choice& choice, const StageTable& table, const Training& training,
                        const std::vector<int>& live);

}  // namespace strata::predict
