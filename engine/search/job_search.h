// JobSearch: searches for the best plan of a job and formats the result, for `strata plan --auto`
// and job:search.
#pragma once

#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/search/cluster/cluster.h"
#include "engine/search/plan_search.h"

namespace strata::search {

/// The fields of a search, for flags and for job:search{...}: cluster, gpus, link, budget.
const FieldTable& ClusterFlags();
/// Converts such options (canonical, by ClusterFlags()) to a request. job.memory is the memory of
/// each device, job.links the file of measured links.
ClusterRequest ToRequest(const Value& options, const Job& job);
/// The limits that such options ask for.
SearchLimits ToLimits(const Value& options);

/// The effect of one change of the cluster.
struct WhatIf {
  std::string change;  ///< "160 GB per device"
  double step = 0;     ///< seconds of the best plan after the change; 0: no better plan
  Candidate candidate = {};
  bool is_cut_short = false;  ///< not all plans after the change were looked at
};

struct JobSearch {
  Cluster cluster;
  int64_t batch = 0;
  FoundPlans result;
  std::vector<WhatIf> what_ifs;
  std::vector<std::string> notices;
};

/// Searches for the job's best plans on the cluster. The number of samples in a step stays the
/// job's: batch.size times the data degree. `given`: job keys (overrides.h) that were set beside
/// the script; if they are among the searched ones (parallel, schedule, stages_per_rank,
/// batch.micro_batches and micro_batch_size, recompute, zero, partition), the search keeps their
/// values. Of the best plans, those that recompute get the choice of layers with the shortest step
/// (recompute = "auto"), unless `given` holds another. `limits` are those of the search and
/// of the changes of the cluster together. Throws ConfigError as JobCosts does, for a key whose
/// value the planner does not support (named), and if nothing fits into the memory, with the
/// smallest memory that would suffice.
JobSearch SearchFor(const Job& job, const Value& given, const ClusterRequest& request, int top,
                    Script* script, const SearchLimits& limits = {});

/// The keys of a candidate, as job:plan{...} accepts them.
Value KeysOf(const Candidate& candidate);
/// The same as lines of a script.
std::string ScriptLines(const Candidate& candidate);

/// A table of the best plans with reasons, the changes of the cluster that would help, and the
/// script lines of the first plan.
std::string SearchText(const JobSearch& search);
/// {cluster=, devices=, batch=, considered=, simulated=, plans={{step=, bubble=, memory=, keys=,
/// ...}, ...}, what_if={...}, notices={...}}, and if the search was cut short missed=, a share. The
/// keys are stable.
Value SearchRecord(const JobSearch& search);

}  // namespace strata::search
