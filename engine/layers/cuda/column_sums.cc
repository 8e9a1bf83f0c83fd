#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/column_sums.h"

#include <limits>
#include <optional>

#include "engine/layers/cuda/launch.h"

namespace strata {

bool AddColumnSumsByKernel(const at::Tensor& rows, const at::Tensor& sums) {
  constexpr int64_t kColumnsOfBlock = 32, kPack = 8, kManyRows = 1024;
  constexpr uintptr_t kVector = 16;
  KernelLauncher* const launcher = KernelsFor(rows);
  const std::optional<KernelElement> element = KernelElementOf(rows.scalar_type());
  if (!launcher || !element || rows.dim() != 2 || rows.numel() == 0 || rows.stride(1) != 1) {
    return false;
  }
  if (sums.scalar_type() != at::kFloat || !sums.is_contiguous()) return false;
  const int64_t count = rows.size(0), columns = rows.size(1), stride = rows.stride(0);
  if (count > std::numeric_limits<int>::max()) return false;
  const bool aligned = reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kVector == 0 &&
                       (stride % kPack == 0 || count == 1);
  LaunchOn(rows, *launcher,
           {.name = "column_sums",
            .element = *element,
            .grid_x = static_cast<unsigned>((columns + kColumnsOfBlock - 1) / kColumnsOfBlock),
            .block = count < kManyRows ? 128U : 1024U,
            .arguments = {Memory(rows), Memory(sums), static_cast<int>(count),
                          static_cast<int>(columns), stride, static_cast<int>(aligned)}});
  return true;
}

}  // namespace strata
