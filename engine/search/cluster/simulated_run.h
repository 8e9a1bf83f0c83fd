// SimulatedRun: simulates the step of a planned job on a described cluster, optionally with slow
// ranks and links. It implements `strata plan --simulate`.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/cluster_forecast.h"

namespace strata::search {

/// Parses the slow ranks and links: "5:1.5" (rank 5 takes 1.5 times as long), "0-8:4" (messages
/// between two ranks) and "node3:4" (messages between a node and others). Throws ConfigError for
/// any other text, for factors below 1, for ranks and nodes that do not exist, and for two ranks
/// that send nothing to each other.
Slowness ReadSlowness(const std::vector<std::string>& stragglers,
                      const std::vector<std::string>& slow_links, const Candidate& candidate,
                      const Cluster& cluster);

struct SimulatedRun {
  Cluster cluster;
  Candidate candidate;  ///< without the plan's own recomputation
  std::vector<int> stage_ranks;
  Slowness slowness;
  StepEvaluation usual;   ///< without slowness
  StepEvaluation slowed;  ///< with slowness; equals `usual` if nothing is slow
};

/// Simulates the plan's own program on the cluster, whose abilities are set. Throws ConfigError if
/// the plan has more ranks than the cluster has devices, if shapes are not known, and as
/// ReadSlowness() does.
SimulatedRun SimulateRun(const Job& job, const Plan& plan, const schedule::Program& program,
                         const Cluster& cluster, const std::vector<std::string>& stragglers,
                         const std::vector<std::string>& slow_links, Script* script);

/// The rank of the pipe axis that is farthest above the memory of its devices; -1 if all fit.
int FullestRank(const SimulatedRun& run);
/// Text for the user: step, bubble, a line for each rank of the pipe axis, traffic, and what the
/// slowness costs.
std::string RunText(const SimulatedRun& run);
/// The same as a value for programs; the keys are stable.
Value RunRecord(const SimulatedRun& run);

}  // namespace strata::search
