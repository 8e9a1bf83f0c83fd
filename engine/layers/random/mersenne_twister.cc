// PyTorch's engine computes one random word at a time. Here all 624 words of the next state are
// computed in loops that the compiler vectorises, and then as many pairs of words as there are
// elements are compared with the limit p * 2^53. Two words make one element, as in at::bernoulli_:
// the lower 53 bits of both count.
#include "engine/layers/random/mersenne_twister.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int kWords = at::MERSENNE_STATE_N;
constexpr int kFar = at::MERSENNE_STATE_M;  // the distance of the word that is mixed into a word
constexpr int kDrawsOfElement = 2;          // words of 32 bits
constexpr int kDigits = 53;  // bits of a double's mantissa: the bits of two draws that count

/// The twist of the Mersenne Twister, for a word of the state and its successor.
inline uint32_t Twisted(uint32_t own, uint32_t next) {
  const uint32_t mixed = (own & at::UMASK) | (next & at::LMASK);
  return (mixed >> 1) ^ (-(next & 1) & at::MATRIX_A);
}

/// Computes the state's next words begin..end-1. Each is made of itself, its successor and the word
/// at distance `far`, which is many words away.
STRATA_WIDEST void Twist(uint32_t* words, int begin, int end, int far) {
#pragma GCC ivdep
  for (int i = begin; i < end; ++i) words[i] = words[i + far] ^ Twisted(words[i], words[i + 1]);
}

void NextState(uint32_t* words) {
  Twist(words, 0, kWords - kFar, kFar);
  Twist(words, kWords - kFar, kWords - 1, kFar - kWords);
  words[kWords - 1] = words[kFar - 1] ^ Twisted(words[kWords - 1], words[0]);
}

/// The index of the word that is drawn next; kWords if a new state must be made first.
int NextWord(const at::mt19937_data_pod& state) {
  return state.left_ == 1 ? kWords : static_cast<int>(state.next_);
}

void SetNextWord(at::mt19937& engine, at::mt19937_data_pod& state, int next) {
  state.next_ = static_cast<uint32_t>(next);
  state.left_ = kWords - next + 1;
  engine.set_data(state);
}

/// Sets an element to 1 if the lower 53 bits of its two words are below the limit, else to 0. The
/// first word is the upper half.
STRATA_WIDEST void Fill(const uint32_t* words, uint64_t limit, float* elements, int count) {
  std::array<uint32_t, kWords> draws;
  for (int i = 0; i < kDrawsOfElement * count; ++i) {
    uint32_t word = words[i];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    draws[i] = word ^ (word >> 18);
  }
  // Compares the digits of the upper half, and those of the lower half if the upper ones are equal.
  constexpr uint32_t kUpperDigits = (uint32_t{1} << (kDigits - 32)) - 1;
  const auto upper = static_cast<uint32_t>(limit >> 32), lower = static_cast<uint32_t>(limit);
  for (int i = 0; i < count; ++i) {
    const uint32_t high = draws[2 * i] & kUpperDigits, low = draws[2 * i + 1];
    elements[i] = (high < upper) | ((high == upper) & (low < lower)) ? 1 : 0;
  }
}

}  // namespace

bool DrawBernoulli(at::mt19937& engine, double p, float* elements, int64_t count) {
  at::mt19937_data_pod state = engine.data();
  int next = NextWord(state);
  if (next % kDrawsOfElement != 0) return false;
  const auto limit = static_cast<uint64_t>(std::ceil(std::ldexp(p, kDigits)));
  while (count > 0) {
    if (next == kWords) {
      NextState(state.state_.data());
      next = 0;
    }
    const auto now = static_cast<int>(std::min<int64_t>(count, (kWords - next) / kDrawsOfElement));
    Fill(state.state_.data() + next, limit, elements, now);
    next += kDrawsOfElement * now;
    elements += now;
    count -= now;
  }
  SetNextWord(engine, state, next);
  return true;
}

void Skip(at::mt19937& engine, int64_t words) {
  at::mt19937_data_pod state = engine.data();
  int64_t next = NextWord(state) + words;
  for (; next > kWords; next -= kWords) NextState(state.state_.data());
  SetNextWord(engine, state, static_cast<int>(next));
}

}  // namespace strata
