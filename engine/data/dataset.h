// Dataset: samples with an end, read by index, without torch. Digits, CIFAR-10, text, and the
// synthetic sources are Datasets; a Lua data function is not (it has no end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/job.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// One sample, without the batch dim.
  virtual TensorSpec input() const = 0;
  virtual TensorSpec target() const = 0;
  /// Number of classes of the target, 0 where it has none.
  virtual int64_t classes() const = 0;
  /// Copies the samples `indices`, one behind the other. REQUIRES: room for indices.size() times
  /// input().bytes() and target().bytes(). Either may be null. Thread-safe.
  virtual void Read(std::span<const int64_t> indices, std::byte* input,
                    std::byte* target) const = 0;
};

/// Opens a source. Throws ConfigError (unknown kind or option, with the nearest name) and
/// WorldError that names a missing or broken file and what was expected of it. `script_folder`:
/// relative paths start there.
std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const std::string& script_folder);

/// Which samples make which micro-batch. Every sample once per epoch, in an order shuffled by
/// (seed, epoch) when asked; the global number of a micro-batch is (step*D + replica)*M + m. The
/// last step of an epoch may have fewer micro-batches, and its last one fewer samples.
class Sampler {
 public:
  Sampler(int64_t samples, int64_t micro_batch_size, int64_t micro_batches, int replicas,
          bool shuffle, int64_t seed);
  int64_t steps_per_epoch() const;
  /// Number of micro-batches of `step` on each replica (at most `micro_batches`).
  int64_t micro_batches(int64_t step) const;
  /// Sample numbers of micro-batch `m` of `replica` in `step`; empty past the end.
  std::vector<int64_t> Indices(int64_t step, int replica, int64_t m);

 private:
  int64_t samples_, micro_batch_size_, micro_batches_;
  int replicas_;
  bool shuffle_;
  int64_t seed_;
  int64_t epoch_ = -1;          // whose order `order_` holds
  std::vector<int64_t> order_;  // a permutation of the samples
};

}  // namespace strata
