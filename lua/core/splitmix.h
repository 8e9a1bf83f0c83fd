// Random: the generator behind math.random. Lua's own would give different numbers on different
// ranks.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/base/split_mix.h"

namespace strata::lua {

class Random {
 public:
  Random() : Random(0) {}
  explicit Random(uint64_t seed) : random_(seed) {}
  /// Calls `seed` when the first number is drawn.
  explicit Random(std::function<uint64_t()> seed) : seed_(std::move(seed)) {}

  uint64_t Next();
  /// A number in [0, 1) with 53 random bits.
  double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  /// An integer in [low, high]; each is equally likely. REQUIRES: low <= high.
  int64_t NextInt(int64_t low, int64_t high);

 private:
  SplitMixRandom random_{0};
  std::function<uint64_t()> seed_;
};

}  // namespace strata::lua
