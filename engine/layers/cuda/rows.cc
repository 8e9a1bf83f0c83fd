#include "engine/layers/cuda/rows.h"

#include <ATen/Context.h>

namespace strata {
namespace {

constexpr int64_t kBytes = 16;
/// The least number of multiplications. Smaller products take less time than starting one more
/// kernel.
constexpr int64_t kFewest = int64_t{1} << 30;
/// The least number of multiplications per element of the result. With fewer, the copy, which reads
/// and writes each element, takes too large a share of the time.
constexpr int64_t kFewestTimes = 64;

bool TakesMatrixUnits(at::ScalarType type) {
  return at::isReducedFloatingType(type) ||
         (type == at::kFloat && at::globalContext().allowTF32CuBLAS());
}

}  // namespace

int64_t MissingOfRows(at::ScalarType type, int64_t rows, int64_t out, int64_t in) {
  if (!TakesMatrixUnits(type) || in < kFewestTimes || rows * out * in < kFewest) return 0;
  const int64_t unit = kBytes / static_cast<int64_t>(c10::elementSize(type));
  return (unit - out % unit) % unit;
}

}  // namespace strata
