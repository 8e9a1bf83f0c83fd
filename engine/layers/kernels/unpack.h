// Packs rows of float32 into few bits and reads them back (packing.h), on one thread.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace strata::unpack {

/// The 16 values of NF4, ascending.
extern const float kNf4[16];

/// Packs a block of at most 64 elements; two codes a byte, the first in the upper half. Returns the
/// largest absolute value, or NaN if an element is NaN.
float PackNf4(const float* values, int64_t count, uint8_t* codes);
/// Packs a row into codes from -127 to 127. Returns as PackNf4().
float PackInt8(const float* values, int64_t count, uint8_t* codes);

/// The elements first..first+count-1 of a matrix.
void ReadNf4(const uint8_t* codes, const float* scales, int64_t first, int64_t count, float* to);
void ReadInt8(const uint8_t* codes, const float* scales, int64_t columns, int64_t first,
              int64_t count, float* to);

/// Rounds to the nearest number, ties to even, as ATen does.
void Round(const float* from, int64_t count, c10::BFloat16* to);
void Round(const float* from, int64_t count, c10::Half* to);

}  // namespace strata::unpack
