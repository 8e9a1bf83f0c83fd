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
/// with the same seed is used. Cheap: generators are reused per thread, and seeded (1-2 us) when
/// something draws.
/// REQUIRES: destroyed on its own thread, in reverse order of construction.
/// The first one in a process registers the kernels (2 ms): make one before other threads run.
///
/// Operators that draw and take no generator: dropout and scaled_dot_product_attention draw from
/// the scope on the CPU (they are made of operators that take one); on CUDA they do not, and our
/// layers use their own masks.
class RandomScope {
 public:
  explicit RandomScope(uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
};

/// The seed of layer `layer` (its index in the flattened list) for the global micro-batch
/// `micro_batch`: a 64-bit mix (splitmix64) of all three.
uint64_t ForwardSeed(int64_t job_seed, int64_t micro_batch, int layer);

}  // namespace strata
