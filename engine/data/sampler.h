// Sampler: decides which samples of a dataset go into which micro-batch. Torch-free.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/sample_order.h"

namespace strata {

/// The sizes of a step: each of `replicas` replicas has `micro_batches` micro-batches of
/// `micro_batch_size` samples.
struct SamplerOptions {
  int64_t samples = 0;
  int64_t micro_batch_size = 1;
  int64_t micro_batches = 1;
  int replicas = 1;
  /// True: every epoch has its own order, derived from (seed, epoch) (SampleOrder).
  bool shuffle = false;
  int64_t seed = 0;
  /// Samples that are shuffled among each other (SampleOrder::Windowed); 0 = all.
  int64_t window = 0;
};

/// Every sample occurs once per epoch. The epoch's samples, in its order, are cut into consecutive
/// micro-batches. With D replicas of M micro-batches each, micro-batch m of `replica` in step s of
/// the epoch is number (s*D + replica)*M + m. So D replicas with M micro-batches see the same
/// samples in a step as one replica with D*M. The last step of an epoch may have fewer
/// micro-batches, and its last micro-batch fewer samples. Steps are numbered through all epochs.
/// Not thread-safe: each rank has its own Sampler, and all return the same results.
class Sampler {
 public:
  /// Throws ConfigError if there are no samples or a size is below 1.
  explicit Sampler(const SamplerOptions& options);
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The number of micro-batches that `step` has on each replica: M, or fewer at the end of an
  /// epoch. In each of them at least one replica has samples; those of other replicas may be empty.
  int64_t micro_batches(int64_t step) const;
  /// True if every micro-batch of every replica has a sample.
  bool fills_all(int64_t step) const;
  /// The samples of micro-batch `m` of `replica` in `step`; empty past the end of the epoch.
  std::vector<int64_t> Indices(int64_t step, int replica, int64_t m);
  /// The number of samples in `step`, over all replicas.
  int64_t samples(int64_t step) const;

 private:
  void LoadEpoch(int64_t epoch);
  int64_t StepSize() const;

  SamplerOptions options_;
  int64_t steps_per_epoch_;
  int64_t epoch_ = -1;  // the epoch whose order is in order_
  SampleOrder order_;
};

}  // namespace strata
