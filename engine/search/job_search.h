// JobSearch: the search for a job, and what it tells people. `strata plan --auto` and job:search.
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

/// What says which cluster, for flags and for job:search{...}: cluster, gpus, link.
const FieldTable& ClusterFlags();
/// The cluster that such options (canonical, by ClusterFlags()) ask for. job.memory is what each
/// device has, job.links what was measured between them.
ClusterRequest ToRequest(const Value& options, const Job& job);

/// How much a change of the cluster would help.
struct WhatIf {
  std::string change;  ///< "160 GB per device"
  double step = 0;     ///< of the best plan then; 0: no better one
  Candidate candidate = {};
};

struct JobSearch {
  Cluster cluster;
  int64_t batch = 0;
  FoundPlans result;
  std::vector<WhatIf> what_ifs;
  std::vector<std::string> notices;
};

/// Searches for the job on the cluster. The step's samples stay the job's: batch.size times the
/// data degree. `given`: job keys (overrides.h) that somebody asked for beside the script; those of
/// the searched ones (parallel, schedule, stages_per_rank, batch.micro_batches and
/// micro_batch_size, recompute, zero, partition) hold. Throws ConfigError: what JobCosts does, a
/// key that the planner cannot hold (named), and when nothing fits, with the memory that is needed
/// at least.
JobSearch SearchFor(const Job& job, const Value& given, const ClusterRequest& request, int top,
                    Script* script);

/// The keys of a candidate, as job:plan{...} takes them.
Value KeysOf(const Candidate& candidate);
/// The same as lines of a script.
std::string ScriptLines(const Candidate& candidate);

/// A table of the best with reasons, what would beat them, the lines for the first.
std::string SearchText(const JobSearch& search);
/// {cluster=, devices=, batch=, considered=, simulated=, plans={{step=, bubble=, memory=, keys=,
/// ...},
/// ...}, what_if={...}, notices={...}}. The keys are stable.
Value SearchRecord(const JobSearch& search);

}  // namespace strata::search
