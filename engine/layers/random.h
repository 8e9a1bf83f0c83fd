// Random numbers that do not depend on the partition, the schedule or the thread.
//
// LibTorch's default generator belongs to the whole process, and dropout and attention take no
// generator. So a kernel at DispatchKey::TESTING_ONLY_GenericMode stands before every operator with
// a `Generator?` argument and puts the thread's own generator where None stands (libtorch notes,
// "Recomputation and random numbers").
#pragma once

#include <cstdint>

namespace strata {

/// While one lives, every random operator that this thread runs (and that is given no generator)
/// draws from a generator seeded with `seed`: the same numbers as after torch.manual_seed(seed).
/// Nests: the inner one holds, the outer goes on where it was. On CUDA tensors a CUDA generator
/// with the same seed is used. Cheap (about 1-2 us; the generator is reused per thread).
class RandomScope {
 public:
  explicit RandomScope(uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  struct State;
  State* outer_;
  State* own_;
};

/// The seed of layer `layer` (its index in the flattened list) for the global micro-batch
/// `micro_batch`: a 64-bit mix (splitmix64) of all three.
uint64_t ForwardSeed(int64_t job_seed, int64_t micro_batch, int layer);

}  // namespace strata
