#include "engine/layers/random/mersenne_twister.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int kWords = at::MERSENNE_STATE_N;
constexpr int kFar = at::MERSENNE_STATE_M;  // the distance of the word that is mixed into a word
constexpr int kLanes = 16;
constexpr __mmask16 kAllLanes = 0xffff;
constexpr int kDrawsOfElement = 2;  // draws have 32 bits
constexpr int kDigits = 53;         // bits of a double's mantissa; so many bits of two draws count
constexpr int kElementsAtOnce = kLanes / kDrawsOfElement;

constexpr __mmask16 FirstLanes(int count) {
  return static_cast<__mmask16>(count >= kLanes ? kAllLanes : (1 << count) - 1);
}

STRATA_AVX512_INLINE __m512i ShiftedRight(__m512i words, unsigned count) {
  return _mm512_maskz_srli_epi32(kAllLanes, words, count);
}

/// words ^ ((words << count) & mask), a step of the generator's tempering.
STRATA_AVX512_INLINE __m512i MixedLeft(__m512i words, unsigned count, uint32_t mask) {
  const __m512i shifted = _mm512_maskz_slli_epi32(kAllLanes, words, count);
  const __m512i bits = _mm512_set1_epi32(static_cast<int>(mask));
  return _mm512_xor_si512(words, _mm512_and_si512(shifted, bits));
}

/// Computes the state's next words begin..end-1. Each is made of itself, its successor and the word
/// at distance `far`.
STRATA_AVX512 void Twist(uint32_t* words, int begin, int end, int far) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(at::UMASK));
  const __m512i lower = _mm512_set1_epi32(static_cast<int>(at::LMASK));
  const __m512i matrix = _mm512_set1_epi32(static_cast<int>(at::MATRIX_A));
  const __m512i one = _mm512_set1_epi32(1);
  for (int i = begin; i < end; i += kLanes) {
    const __mmask16 lanes = FirstLanes(end - i);
    const __m512i own = _mm512_maskz_loadu_epi32(lanes, words + i);
    const __m512i next = _mm512_maskz_loadu_epi32(lanes, words + i + 1);
    const __m512i other = _mm512_maskz_loadu_epi32(lanes, words + i + far);
    const __m512i mixed =
        _mm512_or_si512(_mm512_and_si512(own, upper), _mm512_and_si512(next, lower));
    const __mmask16 odd = _mm512_test_epi32_mask(next, one);
    const __m512i twisted =
        _mm512_xor_si512(ShiftedRight(mixed, 1), _mm512_maskz_mov_epi32(odd, matrix));
    _mm512_mask_storeu_epi32(words + i, lanes, _mm512_xor_si512(other, twisted));
  }
}

void NextState(uint32_t* words) {
  Twist(words, 0, kWords - kFar, kFar);
  Twist(words, kWords - kFar, kWords - 1, kFar - kWords);
  const uint32_t mixed = (words[kWords - 1] & at::UMASK) | (words[0] & at::LMASK);
  words[kWords - 1] = words[kFar - 1] ^ (mixed >> 1) ^ (words[0] & 1 ? at::MATRIX_A : 0);
}

STRATA_AVX512_INLINE __m512i Tempered(__m512i words) {
  words = _mm512_xor_si512(words, ShiftedRight(words, 11));
  words = MixedLeft(words, 7, 0x9d2c5680);
  words = MixedLeft(words, 15, 0xefc60000);
  return _mm512_xor_si512(words, ShiftedRight(words, 18));
}

/// Sets an element to 1 if the lower 53 bits of its two words are below the limit, else to 0. The
/// first word is the upper half.
STRATA_AVX512 void Fill(const uint32_t* words, uint64_t limit, float* elements, int count) {
  const __m512i digits = _mm512_set1_epi64((int64_t{1} << kDigits) - 1);
  const __m512i limits = _mm512_set1_epi64(static_cast<int64_t>(limit));
  for (int i = 0; i < count; i += kElementsAtOnce) {
    const int at_once = std::min(kElementsAtOnce, count - i);
    const __m512i draws = Tempered(_mm512_maskz_loadu_epi32(FirstLanes(kDrawsOfElement * at_once),
                                                            words + kDrawsOfElement * i));
    const __m512i numbers = _mm512_and_si512(_mm512_maskz_rol_epi64(0xff, draws, 32), digits);
    const __mmask8 below = _mm512_cmplt_epu64_mask(numbers, limits);
    _mm512_mask_storeu_ps(elements + i, FirstLanes(at_once),
                          _mm512_maskz_mov_ps(below, _mm512_set1_ps(1)));
  }
}

}  // namespace

bool DrawBernoulli(at::mt19937& engine, double p, float* elements, int64_t count) {
  at::mt19937_data_pod state = engine.data();
  int next = state.left_ == 1 ? kWords : static_cast<int>(state.next_);
  if (!HasAvx512() || next % kDrawsOfElement != 0) return false;
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
  state.next_ = static_cast<uint32_t>(next);
  state.left_ = kWords - next + 1;
  engine.set_data(state);
  return true;
}

}  // namespace strata
