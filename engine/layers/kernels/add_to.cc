#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/add_to.h"

#include <algorithm>

namespace strata {

void AddTo(const at::Tensor& sum, const at::Tensor& addend) {
  constexpr int64_t kPiece = 1 << 18;
  const bool in_pieces = sum.is_cpu() && sum.scalar_type() != addend.scalar_type() &&
                         sum.is_contiguous() && addend.is_contiguous() &&
                         sum.sizes() == addend.sizes();
  if (!in_pieces) {
    sum.add_(addend);
    return;
  }
  const at::Tensor to = sum.view(-1), from = addend.view(-1);
  for (int64_t begin = 0; begin < to.numel(); begin += kPiece) {
    const int64_t count = std::min(kPiece, to.numel() - begin);
    to.narrow(0, begin, count).add_(from.narrow(0, begin, count));
  }
}

}  // namespace strata
