// A block of NF4 has 64 elements in 32 bytes. With AVX-512 the table is one register: eight bytes
// become 16 indices, which one permutation looks up. With AVX2 the table is two registers, and bit
// 3 of the index chooses between them.
#include "engine/layers/kernels/unpack.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/layers/kernels/avx512.h"

// GCC 12 warns of its own headers for AVX-512, whose unused operands are uninitialised on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace strata::unpack {

const float kNf4[16] = {-1.0F,
                        -0.6961928009986877F,
                        -0.5250730514526367F,
                        -0.39491748809814453F,
                        -0.28444138169288635F,
                        -0.18477343022823334F,
                        -0.09105003625154495F,
                        0.0F,
                        0.07958029955625534F,
                        0.16093020141124725F,
                        0.24611230194568634F,
                        0.33791524171829224F,
                        0.44070982933044434F,
                        0.5626170039176941F,
                        0.7229568362236023F,
                        1.0F};

namespace {

constexpr int64_t kBlock = 64;
constexpr float kMost = 127;           // the largest code of int8
constexpr float kLeastScale = 1e-38F;  // its inverse is finite

/// The largest absolute value; NaN if there is one.
STRATA_WIDEST float LargestOf(const float* values, int64_t count) {
  uint32_t most = 0;  // the bits of numbers without sign are ordered as they are, NaN above all
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFU;
    most = bits > most ? bits : most;
  }
  const auto largest = std::bit_cast<float>(most);
  return largest == largest ? largest : std::numeric_limits<float>::quiet_NaN();
}

/// The index of the nearest value of the table, the lower one of two that are as near.
STRATA_WIDEST void NearestOf(const float* values, float factor, int64_t count, uint32_t* nearest) {
  for (int64_t i = 0; i < count; ++i) nearest[i] = 0;
  for (int k = 0; k < 15; ++k) {
    const float middle = (kNf4[k] + kNf4[k + 1]) / 2;
    for (int64_t i = 0; i < count; ++i) nearest[i] += values[i] * factor > middle ? 1 : 0;
  }
}

STRATA_WIDEST void RoundCodes(const float* values, float factor, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(values[i] * factor)));
  }
}

float CodeAt(const uint8_t* codes, int64_t i) {
  return kNf4[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
}

using ReadBlocks = void (*)(const uint8_t* codes, const float* scales, int64_t blocks, float* to);

STRATA_AVX512 void ReadWithAvx512(const uint8_t* codes, const float* scales, int64_t blocks,
                                  float* to) {
  const __m512 table = _mm512_loadu_ps(kNf4);
  for (int64_t i = 0; i < blocks; ++i) {
    const __m512 scale = _mm512_set1_ps(scales[i]);
    for (int part = 0; part < 4; ++part, codes += 8, to += 16) {
      // A 64-bit lane has a byte: its upper half is the first index, the whole byte the second.
      const __m512i byte =
          _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
      const __m512i index =
          _mm512_or_si512(_mm512_srli_epi64(byte, 4), _mm512_slli_epi64(byte, 32));
      _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_permutexvar_ps(index, table), scale));
    }
  }
}

STRATA_AVX2 void ReadWithAvx2(const uint8_t* codes, const float* scales, int64_t blocks,
                              float* to) {
  const __m256 low = _mm256_loadu_ps(kNf4), high = _mm256_loadu_ps(kNf4 + 8);
  for (int64_t i = 0; i < blocks; ++i) {
    const __m256 scale = _mm256_set1_ps(scales[i]);
    for (int part = 0; part < 8; ++part, codes += 4, to += 8) {
      int four = 0;
      std::memcpy(&four, codes, sizeof(four));
      const __m256i byte = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
      const __m256i index =
          _mm256_or_si256(_mm256_srli_epi64(byte, 4), _mm256_slli_epi64(byte, 32));
      const __m256 value = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                                            _mm256_permutevar8x32_ps(high, index),
                                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
      _mm256_storeu_ps(to, _mm256_mul_ps(value, scale));
    }
  }
}

void ReadPlainly(const uint8_t* codes, const float* scales, int64_t blocks, float* to) {
  for (int64_t i = 0; i < blocks * kBlock; ++i) to[i] = CodeAt(codes, i) * scales[i / kBlock];
}

STRATA_WIDEST void ReadRow(const uint8_t* codes, float scale, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    // Two products, as bitsandbytes has it: code * scale / 127 rounds otherwise.
    to[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale * (1 / kMost);
  }
}

STRATA_WIDEST void RoundBits(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    to[i] = static_cast<uint16_t>(from[i] == from[i] ? rounded : 0x7FC0U);
  }
}

}  // namespace

float PackNf4(const float* values, int64_t count, uint8_t* codes) {
  const float largest = LargestOf(values, count);
  uint32_t nearest[kBlock + 1] = {};
  NearestOf(values, 1 / std::max(largest, kLeastScale), count, nearest);
  if (count % 2 == 1) nearest[count] = 7;  // a zero
  for (int64_t i = 0; i < count; i += 2) {
    codes[i / 2] = static_cast<uint8_t>(nearest[i] << 4 | nearest[i + 1]);
  }
  return largest;
}

float PackInt8(const float* values, int64_t count, uint8_t* codes) {
  const float largest = LargestOf(values, count);
  const float factor = kMost / largest;
  const bool is_sound = factor > 0 && factor <= std::numeric_limits<float>::max();
  RoundCodes(values, factor, is_sound ? count : 0, codes);
  if (!is_sound) std::fill_n(codes, count, 0);  // of zeros, or of numbers that are not finite
  return largest;
}

void ReadNf4(const uint8_t* codes, const float* scales, int64_t first, int64_t count, float* to) {
  const ReadBlocks read = HasAvx512() ? ReadWithAvx512 : HasAvx2() ? ReadWithAvx2 : ReadPlainly;
  const int64_t end = first + count;
  int64_t i = first;
  while (i < end) {
    if (i % kBlock == 0 && end - i >= kBlock) {
      const int64_t blocks = (end - i) / kBlock;
      read(codes + i / 2, scales + i / kBlock, blocks, to + (i - first));
      i += blocks * kBlock;
      continue;
    }
    const int64_t stop = std::min(end, (i / kBlock + 1) * kBlock);
    for (; i < stop; ++i) to[i - first] = CodeAt(codes, i) * scales[i / kBlock];
  }
}

void ReadInt8(const uint8_t* codes, const float* scales, int64_t columns, int64_t first,
              int64_t count, float* to) {
  const int64_t end = first + count;
  for (int64_t i = first; i < end;) {
    const int64_t row = i / columns, stop = std::min(end, (row + 1) * columns);
    ReadRow(codes + i, scales[row], stop - i, to + (i - first));
    i = stop;
  }
}

void Round(const float* from, int64_t count, c10::BFloat16* to) {
  RoundBits(from, count, reinterpret_cast<uint16_t*>(to));
}

void Round(const float* from, int64_t count, c10::Half* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace strata::unpack
