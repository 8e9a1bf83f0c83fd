#include "engine/layers/packing.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/size_class.h"

namespace strata {

const std::vector<std::string>& PackingNames() {
  static const std::vector<std::string> names = {"nf4", "int8"};
  return names;
}

std::string PackingName(Packing packing) {
  return packing == Packing::kNone ? "" : PackingNames()[static_cast<size_t>(packing) - 1];
}

Packing ParsePacking(std::string_view name) {
  const auto found = std::ranges::find(PackingNames(), name);
  STRATA_CHECK(found != PackingNames().end()) << name;
  return static_cast<Packing>(found - PackingNames().begin() + 1);
}

int64_t BlockElements(Packing packing, int64_t columns) {
  constexpr int64_t kBlock = 64;
  return packing == Packing::kNf4 ? kBlock : columns;
}

int64_t CodeBytes(Packing packing, int64_t rows, int64_t columns) {
  const int64_t elements = rows * columns;
  return packing == Packing::kNf4 ? (elements + 1) / 2 : elements;
}

int64_t ScaleCount(Packing packing, int64_t rows, int64_t columns) {
  const int64_t block = BlockElements(packing, columns);
  return (rows * columns + block - 1) / block;
}

int64_t PackedBytes(Packing packing, int64_t rows, int64_t columns) {
  constexpr int64_t kScaleBytes = 4;
  return AllocatedBytes(CodeBytes(packing, rows, columns)) +
         AllocatedBytes(kScaleBytes * ScaleCount(packing, rows, columns));
}

}  // namespace strata
