// RankContext: the part of a job that a rank has, and the objects that the components of its engine
// share.
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

/// Must outlive all objects that get it.
struct RankContext {
  const Job& job;
  const Plan& plan;
  EngineScript& script;
  Transport& transport;
  Progress& progress;
  c10::Device device;
  std::vector<int> pipe_ranks;  ///< ranks of this pipeline in the transport, by pipe rank
  int pipe_rank;                ///< this rank's index in pipe_ranks
  int replica;                  ///< the index on the data axis, below `replicas`
  int replicas;
  std::shared_ptr<AxisComm> model_axis;  ///< null if the axis has one rank

  int rank() const { return transport.rank(); }
  /// The memory account of this rank: it distinguishes ranks that are threads of one process
  /// (allocator.h).
  int memory_account() const { return rank() % kMemoryAccounts; }
  /// The ranks of the model axis have equal losses, outputs and undivided tensors. True on the one
  /// that reports them.
  bool speaks_for_axis() const { return !model_axis || model_axis->rank() == 0; }
  /// Replicas have equal parameters, too. True on the one rank that reports each of them.
  bool speaks_for_replicas() const { return replica == 0 && speaks_for_axis(); }
};

}  // namespace strata
