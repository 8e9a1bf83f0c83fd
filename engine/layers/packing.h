// Packing: in which few bits a frozen weight of a linear operator is held (the job's
// `adapt.base`). Torch-free; packed_weight.h holds the values.
//
//   nf4   blocks of 64 elements, one behind the other through the whole matrix. An element is a
//         code of 4 bits in the table of Dettmers et al. (arXiv:2305.14314) times the largest
//         absolute value of its block, in float32: 4.5 bits an element.
//   int8  a code from -127 to 127 times the largest absolute value of the row / 127, as in
//         LLM.int8 without outliers (arXiv:2208.07339): 8 bits an element, 4 bytes a row.
//
// Both have the codes of the package bitsandbytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

enum class Packing { kNone, kNf4, kInt8 };

/// The names that `adapt.base` takes: "nf4", "int8".
const std::vector<std::string>& PackingNames();
/// "" for kNone.
std::string PackingName(Packing packing);
/// REQUIRES: one of PackingNames().
Packing ParsePacking(std::string_view name);

/// Elements that share a scale: 64, or a row of `columns`.
int64_t BlockElements(Packing packing, int64_t columns);
/// The number of codes in bytes, and of scales in float32, of a matrix (rows, columns).
int64_t CodeBytes(Packing packing, int64_t rows, int64_t columns);
int64_t ScaleCount(Packing packing, int64_t rows, int64_t columns);
/// The bytes that the allocator takes for a matrix. REQUIRES: not kNone.
int64_t PackedBytes(Packing packing, int64_t rows, int64_t columns);

}  // namespace strata
