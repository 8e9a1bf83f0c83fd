// BatchSource: supplies the micro-batches of runs. The data come from a dataset, from a Lua
// function, or from the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/stage/feed.h"
#include "engine/runtime/stage/rank_context.h"

namespace strata {

/// A supply of runs. A run is one training step, or one part of an evaluation.
class BatchSource {
 public:
  explicit BatchSource(DataOrigin origin) : origin_(std::move(origin)) {}
  virtual ~BatchSource() = default;
  /// The number of runs in one pass over the data; 0 if the data have no end.
  virtual int64_t runs_per_pass() const = 0;
  /// The micro-batches of run `run`, counted from 0 over all passes. The source must outlive the
  /// feed.
  virtual std::unique_ptr<Feed> Next(int64_t run) = 0;

 protected:
  const DataOrigin origin_;
};

/// How a source divides its data into runs, and which replica reads.
struct BatchOptions {
  Batch batch;      ///< uses micro_batches per run and micro_batch_size
  int replica = 0;  ///< the index of this replica among `replicas`
  int replicas = 1;
  /// True if this rank will ask for inputs and for targets.
  bool wants_both = true;
  /// The account of the memory of the reading threads (engine/base/tensors/allocator.h).
  int memory_account = 0;
  int spare_cores = 0;       ///< cores of this machine's share that the rank does not compute on
  bool accelerated = false;  ///< true if the rank computes on an accelerator
};

/// The number of threads that read ahead. data.workers decides if the job sets it. Otherwise data
/// in files get one thread; beside an accelerator, which leaves the rank's cores idle, any data get
/// one thread per spare core, up to eight. Data that call functions of the script get none: these
/// functions run in the rank's own thread, because another thread would have to wait for the
/// interpreter while the rank waits for the thread. Throws ConfigError if the job asks for workers
/// for such data.
int WorkersFor(const DataSpec& spec, int spare_cores);

/// The number of micro-batches that are read ahead. data.prefetch decides if the job sets it.
/// Otherwise one per worker plus the one that the rank takes, and at least two.
int PrefetchFor(const DataSpec& spec, int workers);

/// Opens the data of a job. REQUIRES: spec.kind is not "". Throws ConfigError and WorldError as
/// OpenDataset() does. All arguments must outlive the source.
std::unique_ptr<BatchSource> OpenSource(const Job& job, const DataSpec& spec,
                                        const BatchOptions& options, EngineScript& script);

/// Opens the data as a rank needs them: its replica, the halves that its stages use, its device.
/// Returns null if spec.kind is "".
std::unique_ptr<BatchSource> OpenRankSource(const RankContext& rank, const DataSpec& spec,
                                            const Batch& batch);

/// A feed of the micro-batches that the caller gives; they must outlive the feed. The list holds
/// the micro-batches of all replicas in order: those of replica r begin at r * most(). Throws
/// ConfigError if the list is empty or a micro-batch has no rows.
std::unique_ptr<Feed> FeedOf(const MicroBatches& batches, int replica, int replicas);

}  // namespace strata
