// Bounds: what a step takes at least, and a rank holds at least, without simulating. The search
// (plan_search.h) leaves out what these already rule out.
#pragma once

#include <vector>

#include "engine/search/cluster/cluster_forecast.h"

namespace strata::search {

/// Seconds that a message between neighbouring stages takes at least, wherever the network is cut.
double MessageAtLeast(const Candidate& candidate, const StageTable& table, const Cluster& cluster);

/// The least step of all cuts. Each rank has its share of the work. A micro-batch has its way there
/// and back. Ranks wait for their first input, and at the end for the ranks before them.
double StepAtLeast(const Candidate& candidate, const StageTable& table, const Training& training,
                   const Cluster& cluster);

/// The least step of each of many cuts of one candidate, messages and reductions included. The
/// candidate's own bounds are ignored.
class CutStep {
 public:
  /// Keeps references to all of them.
  CutStep(const Candidate& candidate, const StageTable& table, const Training& training,
          const Cluster& cluster);
  double AtLeast(const std::vector<int>& bounds);

 private:
  struct Rank {
    Group replicas;
    double work = 0, reduce = 0, update = 0, head = -1, drain = 0;
  };

  const Candidate& choice_;
  const StageTable& table_;
  const Training& training_;
  const bool splits_;
  const std::vector<int> stage_ranks_;
  std::vector<LinkRates> links_;  ///< behind each stage
  std::vector<Rank> ranks_;
};

/// How many micro-batches of each stage are alive (from F to B or I) at the moment when the stage's
/// rank has the most of them; for some schedules a few less where there are many micro-batches.
std::vector<int> LiveAtLeast(const Candidate& candidate);

/// Bytes of the fullest rank, for any cut.
double MemoryAtLeast(const Candidate& candidate, const StageTable& table, const Training& training);
/// For the candidate's cut. `live`: LiveAtLeast().
double CutMemoryAtLeast(const Candidate& candidate, const StageTable& table,
                        const Training& training, const std::vector<int>& live);

}  // namespace strata::search
