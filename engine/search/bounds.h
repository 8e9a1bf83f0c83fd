// Bounds: lower bounds of a step's time and a rank's memory, computed without a simulation. The
// search (plan_search.h) skips the candidates that they rule out.
#pragma once

#include <vector>

#include "engine/search/cluster/cluster_forecast.h"

namespace strata::search {

/// A lower bound of the seconds of a message between neighbouring stages, for any cuts.
double MessageAtLeast(const Candidate& candidate, const StageTable& table, const Cluster& cluster);

/// A lower bound of the step over all cuts. It combines three facts: each rank has a share of the
/// work; a micro-batch passes all stages forward and back; ranks wait for their first input, and at
/// the end for the ranks before them.
double StepAtLeast(const Candidate& candidate, const StageTable& table, const Training& training,
                   const Cluster& cluster);

/// A lower bound of the step for each of many cuts of one candidate, including messages and
/// reductions. The candidate's own bounds are ignored.
class CutStep {
 public:
  /// Keeps references to all arguments.
  CutStep(const Candidate& candidate, const StageTable& table, const Training& training,
          const Cluster& cluster);
  double AtLeast(const std::vector<int>& bounds);

 private:
  struct Rank {
    Group replicas;
    double least = 1, most = 1;  ///< of the Paces
    double work = 0, reduce = 0, update = 0, head = -1, drain = 0;
  };

  const Candidate& choice_;
  const StageTable& table_;
  const Training& training_;
  const bool splits_;
  const std::vector<int> stage_ranks_;
  std::vector<LinkRates> links_;  ///< the link after each stage
  std::vector<Rank> ranks_;
};

/// A lower bound, per stage, of the micro-batches that are live (between F and B or I) at the
/// moment when the stage's rank has most of them. For some schedules with many micro-batches it is
/// a few too low.
std::vector<int> LiveAtLeast(const Candidate& candidate);

/// A lower bound in bytes for the fullest rank, for any cuts.
double MemoryAtLeast(const Candidate& candidate, const StageTable& table, const Training& training);
/// The same of each rank of the pipe axis for the candidate's own cuts. `live`: from LiveAtLeast().
std::vector<double> CutMemoryAtLeast(const Candidate& candidate, const StageTable& table,
                                     const Training& training, const std::vector<int>& live);

}  // namespace strata::search
