// Random numbers that do not depend on the cuts, the schedule or the thread.
//
// LibTorch's default generator belongs to the whole process, and dropout and attention take no
// generator argument. So we register a kernel at DispatchKey::TESTING_ONLY_GenericMode for every
// operator with a `Generator?` argument. It runs before the operator and replaces None by the
// thread's own generator (libtorch notes, "Recomputation and random numbers").
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace strata {

/// While an object lives, random operators on its thread draw from a generator seeded with `seed`,
/// unless they are given a generator. The numbers are those that follow torch.manual_seed(seed). On
/// CUDA tensors a CUDA generator with the same seed is used. Scopes nest: the innermost one is
/// used, and the outer one continues afterwards where it was. A scope is cheap: a thread reuses its
/// generators, and seeds one (1-2 us) only when something draws.
/// REQUIRES: destroyed on its own thread, in reverse order of construction.
/// The first scope of a process registers the kernels (2 ms) and must be made before other threads
/// run.
///
/// Some operators draw though they take no generator argument. On the CPU, dropout and
/// scaled_dot_product_attention are made of operators that take one. On an accelerator, dropout and
/// fused attention draw from the device's default generator. During the call it is set to the state
/// of the scope's generator, under a lock: the threads of a process take turns.
class RandomScope {
 public:
  explicit RandomScope(uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
};

/// Draws a seed for a nested scope from the device's generator of this scope. So this scope
/// continues at the same place, however much is drawn in the nested one. REQUIRES: a scope, and a
/// device whose generators have offsets (CUDA).
uint64_t SplitSeed(c10::Device device);

/// Draws a seed from this scope, for a kernel that makes random numbers by itself. It is another
/// one for each call, whatever else is drawn. REQUIRES: a scope.
uint64_t DrawSeed();

/// The seed of this thread's innermost scope. A recomputed forward gets the same seed again.
/// REQUIRES: a scope.
uint64_t ScopeSeed();

/// True when something was drawn from this thread's innermost scope.
bool HasDrawn();

/// The seed for layer `layer` (its index in the flattened list) and global micro-batch
/// `micro_batch`: a mix (splitmix64) of the three numbers.
uint64_t ForwardSeed(int64_t job_seed, int64_t micro_batch, int layer);

}  // namespace strata
