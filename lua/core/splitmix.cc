// The splitmix64 generator, by Steele, Lea and Flood (2014).
#include "lua/core/splitmix.h"

#include <utility>

namespace strata::lua {

uint64_t Random::Next() {
  if (seed_) random_ = SplitMixRandom(std::exchange(seed_, nullptr)());
  return random_.Next();
}

int64_t Random::NextInt(int64_t low, int64_t high) {
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (span == ~uint64_t{0}) return static_cast<int64_t>(Next());
  // 2^64 is usually not a multiple of span + 1. The `leftover` largest numbers are drawn again, so
  // that each result stays equally likely.
  const uint64_t count = span + 1, leftover = (~uint64_t{0} % count + 1) % count;
  uint64_t drawn;
  do drawn = Next();
  while (drawn > ~uint64_t{0} - leftover);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + drawn % count);
}

}  // namespace strata::lua
