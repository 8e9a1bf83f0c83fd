#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/unpack_kernels.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <optional>
#include <vector>

#include "engine/layers/cuda/launch.h"
#include "engine/layers/kernels/unpack.h"

namespace strata {

at::Tensor Unpacked(const PackedPart& part, at::ScalarType type) {
  constexpr int64_t kPack = 8, kThreads = 256;
  KernelLauncher* const launcher = KernelsFor(part.codes);
  const std::optional<KernelElement> element = KernelElementOf(type);
  const int64_t count = part.rows * part.columns;
  if (!launcher || !element || count == 0) return UnpackedByAten(part, type);
  at::Tensor dense = at::empty({part.rows, part.columns}, part.scales.options().dtype(type));
  const bool is_nf4 = part.packing == Packing::kNf4;
  std::vector<KernelArgument> arguments = {Memory(part.codes), Memory(part.scales), Memory(dense),
                                           part.first, count};
  if (!is_nf4) arguments.emplace_back(part.columns);
  const int64_t threads = (count + kPack - 1) / kPack;
  LaunchOn(part.codes, *launcher,
           {.name = is_nf4 ? "unpack_nf4" : "unpack_int8",
            .element = *element,
            .grid_x = static_cast<unsigned>((threads + kThreads - 1) / kThreads),
            .block = kThreads,
            .arguments = std::move(arguments)});
  return dense;
}

at::Tensor UnpackedByAten(const PackedPart& part, at::ScalarType type) {
  const int64_t count = part.rows * part.columns;
  const at::Device device = part.codes.device();
  const at::Tensor places =
      at::arange(part.first, part.first + count, at::dtype(at::kLong).device(device));
  const at::Tensor scales =
      part.scales.index_select(0, places.div(BlockElements(part.packing, part.columns), "floor"));
  at::Tensor dense;
  if (part.packing == Packing::kNf4) {
    const at::Tensor table = at::tensor(at::ArrayRef<float>(unpack::kNf4)).to(device);
    const at::Tensor codes =
        at::stack({part.codes.bitwise_right_shift(4), part.codes.bitwise_and(15)}, 1).flatten();
    dense = table.index_select(0, codes.index_select(0, places).to(at::kLong)).mul_(scales);
  } else {
    dense = part.codes.view(at::kChar).index_select(0, places).to(at::kFloat).mul_(scales);
    dense.mul_(1 / 127.0F);
  }
  return dense.view({part.rows, part.columns}).to(type);
}

}  // namespace strata
