// Where the micro-batches of a run come from: a dataset, a Lua function, or the caller.
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

/// A supply of runs: training steps, or the parts of an evaluation.
class BatchSource {
 public:
  explicit BatchSource(DataOrigin origin) : origin_(std::move(origin)) {}
  virtual ~BatchSource() = default;
  /// Runs of one pass over the data; 0 when it has no end.
  virtual int64_t runs_per_pass() const = 0;
  /// Run `run`, counted from 0 over all passes. The source must outlive it.
  virtual std::unique_ptr<Feed> Next(int64_t run) = 0;

 protected:
  const DataOrigin origin_;
};

/// How a source is cut into runs for one replica.
struct BatchOptions {
  Batch batch;      ///< micro_batches per run and micro_batch_size
  int replica = 0;  ///< of `replicas`
  int replicas = 1;
  bool wants_both = true;    ///< the rank will ask for inputs and for targets
  int memory_account = 0;    ///< of threads that read ahead (engine/base/tensors/allocator.h)
  int spare_cores = 0;       ///< that the rank does not compute on
  bool accelerated = false;  ///< the rank computes on an accelerator
};

/// Threads that read ahead: as many as the job's data says, else one for data in files, and up to
/// eight for any data beside an accelerator, which leaves the rank's cores idle. Functions of the
/// script run in the rank's own thread: another one would wait for its turn while the rank, at the
/// end, waits for it. Throws ConfigError where the job's data says otherwise.
int WorkersFor(const DataSpec& spec, int spare_cores);

/// Micro-batches that are read ahead: as many as the job's data says, else at least two, and one
/// for each worker while the rank takes another.
int PrefetchFor(const DataSpec& spec, int workers);

/// Opens job data. REQUIRES: spec.kind is not "". Throws ConfigError and WorldError as
/// OpenDataset(). Everything must outlive the source.
std::unique_ptr<BatchSource> OpenSource(const Job& job, const DataSpec& spec,
                                        const BatchOptions& options, EngineScript& script);

/// The same for the part of a rank: null where spec.kind is "".
std::unique_ptr<BatchSource> OpenRankSource(const RankContext& rank, const DataSpec& spec,
                                            const Batch& batch);

/// The caller's micro-batches, which must outlive the feed, those of all replicas behind each
/// other: replica r has those from r * most() on. Throws ConfigError when there are none, or one is
/// empty.
std::unique_ptr<Feed> FeedOf(const MicroBatches& batches, int replica, int replicas);

}  // namespace strata
