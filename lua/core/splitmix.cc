// Splitmix64.
#include "lua/core/splitmix.h"

#include <utility>

namespace strata::lua {

uint64_t Random::Next() {
  if (seed_) state_ = std::exchange(seed_, nullptr)();
  state_ += 0x9e3779b97f4a7c15;
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

int64_t Random::NextInt(int64_t low, int64_t high) {
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (span == ~uint64_t{0}) return static_cast<int64_t>(Next());
  // What is left over when 2^64 is dealt to span + 1 numbers is drawn again.
  const uint64_t count = span + 1, leftover = (~uint64_t{0} % count + 1) % count;
  uint64_t drawn;
  do drawn = Next();
  while (drawn > ~uint64_t{0} - leftover);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + drawn % count);
}

}  // namespace strata::lua
