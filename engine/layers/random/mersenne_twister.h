// PyTorch's CPU generator (mt19937), several words at a time: draws zeros and ones, and skips
// words. Half a million draws take 0.3 ms; ATen's bernoulli_ takes 3 ms. The results are the same.
#pragma once

#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>

namespace strata {

/// Sets each of `count` elements to 1 with probability p, else to 0, and advances the engine, as
/// at::Tensor::bernoulli_(p) does. Returns false and does nothing when the engine's position is
/// odd: each element takes two draws.
bool DrawBernoulli(at::mt19937& engine, double p, float* elements, int64_t count);

/// Advances the engine by so many words of 32 bits, as if they were drawn.
void Skip(at::mt19937& engine, int64_t words);

}  // namespace strata
