// SimulatedRun: the step of a planned job on a cluster that need not be here, with what is slow
// there. `strata plan --simulate`.
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

/// "5:1.5" (rank 5 takes 1.5 times as long) and "0-8:4", "node3:4" (messages between two ranks,
/// between a node and others). Throws ConfigError for any other text, for factors below 1, for
/// ranks and nodes that there are not, and for two ranks that send each other nothing.
Slowness ReadSlowness(const std::vector<std::string>& stragglers,
                      const std::vector<std::string>& slow_links, const Candidate& candidate,
                      const Cluster& cluster);

struct SimulatedRun {
  Cluster cluster;
  Candidate candidate;  ///< recomputation aside, which is the plan's own
  std::vector<int> stage_ranks;
  Slowness slowness;
  ClusterForecast usual;   ///< when nothing is slow
  ClusterForecast slowed;  ///< equals `usual` where nothing is slow
};

/// The plan's own program on the cluster. Throws ConfigError: more ranks than devices, shapes that
/// are not known, and what ReadSlowness() does.
SimulatedRun SimulateRun(const Job& job, const Plan& plan, const schedule::Program& program,
                         const Cluster& cluster, const std::vector<std::string>& stragglers,
                         const std::vector<std::string>& slow_links, Script* script);

/// Step, bubble, a line for each rank of the pipe axis, traffic, and what slowness costs.
std::string RunText(const SimulatedRun& run);
/// The same for programs; the keys are stable.
Value RunRecord(const SimulatedRun& run);

}  // namespace strata::search
