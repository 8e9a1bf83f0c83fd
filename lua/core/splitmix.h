// The generator behind math.random. Lua's own would give other numbers on other ranks.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/base/split_mix.h"

namespace strata::lua {

class Random {
 public:
  Random() : Random(0) {}
  explicit Random(uint64_t seed) : random_(seed) {}
  /// Asks for the seed when the first number is drawn.
  explicit Random(std::function<uint64_t()> seed) : seed_(std::move(seed)) {}

  uint64_t Next();
  /// In [0, 1), with 53 bits.
  double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  /// In [low, high], each equally likely. REQUIRES: low <= high.
  int64_t NextInt(int64_t low, int64_t high);

 private:
  SplitMixRandom random_{0};
  std::function<uint64_t()> seed_;
};

}  // namespace strata::lua
