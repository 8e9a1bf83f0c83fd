// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). It is
// short, and every seed gives good numbers.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata {

/// The number that a generator with this state returns next.
inline uint64_t SplitMix(uint64_t state) {
  uint64_t word = state + 0x9e3779b97f4a7c15;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

/// A number for a text: each character changes the state, which begins with `state`.
inline uint64_t SplitMix(uint64_t state, std::string_view text) {
  for (const char c : text) state = SplitMix(state ^ static_cast<unsigned char>(c));
  return state;
}

class SplitMixRandom {
 public:
  explicit SplitMixRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t number = SplitMix(state_);
    state_ += 0x9e3779b97f4a7c15;
    return number;
  }
  /// A number from 0 to count - 1. It is the remainder of a 64-bit number, so the bias is
  /// negligible for the counts used here. REQUIRES: count > 0.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(count));
  }

 private:
  uint64_t state_;
};

}  // namespace strata
