// RankContext: which part of a job a rank has, and what the parts of its engine share.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "engine/base/tensors/allocator.h"
#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Outlives the parts that get it.
struct RankContext {
  const Job& job;
  const Plan& plan;
  EngineScript& script;
  Transport& transport;
  Progress& progress;
  c10::Device device;
  std::vector<int> pipe_ranks;  ///< the transport's rank of each rank of this pipeline
  int pipe_rank;                ///< this rank's place among them
  int replica;                  ///< the index on the data axis, of `replicas`
  int replicas;
  std::shared_ptr<AxisComm> model_axis;  ///< null where it has one rank

  int rank() const { return transport.rank(); }
  /// Tells the memory of ranks apart that are threads of one process (allocator.h).
  int memory_account() const { return rank() % kMemoryAccounts; }
  /// Ranks of the model axis have the same losses, outputs and unshared tensors: one tells of them.
  bool speaks_for_axis() const { return !model_axis || model_axis->rank() == 0; }
  /// The same for the replicas: one rank tells of each parameter.
  bool speaks_for_replicas() const { return replica == 0 && speaks_for_axis(); }
};

}  // namespace strata
