// Sampler: which samples make which micro-batch.
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

/// The shape of a step's work: `micro_batches` per replica of `micro_batch_size` samples each.
struct SamplerOptions {
  int64_t samples = 0;
  int64_t micro_batch_size = 1;
  int64_t micro_batches = 1;
  int replicas = 1;
  bool shuffle = false;  ///< a new order for every epoch, from (seed, epoch)
  int64_t seed = 0;
};

/// Every sample once per epoch. An epoch is a row of micro-batches with consecutive samples of the
/// epoch's order; micro-batch (step*D + replica)*M + m of that row belongs to `replica`, so D
/// replicas with M micro-batches see what one replica with D*M sees. The last step of an epoch may
/// have fewer micro-batches, and its last one fewer samples. Steps count on over epochs.
/// Not thread-safe: each rank has its own, and all ranks get the same answers.
class Sampler {
 public:
  /// Throws ConfigError when there are no samples or a size is below 1.
  explicit Sampler(const SamplerOptions& options);
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Micro-batches of `step` on each replica: M, or fewer at the end of an epoch. At least one
  /// replica has a sample in each; others may have empty ones.
  int64_t micro_batches(int64_t step) const;
  /// The samples of micro-batch `m` of `replica` in `step`; empty past the end of the epoch.
  std::vector<int64_t> Indices(int64_t step, int replica, int64_t m);
  /// Number of samples in the whole `step`, all replicas.
  int64_t samples(int64_t step) const;

 private:
  void LoadEpoch(int64_t epoch);
  int64_t StepSize() const;

  SamplerOptions options_;
  int64_t steps_per_epoch_;
  int64_t epoch_ = -1;          // whose order order_ holds
  std::vector<int64_t> order_;  // a permutation of the samples
};

}  // namespace strata
