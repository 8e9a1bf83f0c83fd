#include "engine/base/tensors/layout.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace strata {
namespace {

int64_t Span(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return 0;
    last += (sizes[dim] - 1) * strides[dim];
  }
  return last + 1;
}

/// Changes sizes and strides in place, so the tensor does not become a view.
void SetGeometry(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

/// Takes one element of every dim with stride 0, along which all elements share memory. copy_()
/// refuses to write to a tensor with such dims.
at::Tensor WithoutRepeats(at::Tensor tensor, at::IntArrayRef strides) {
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    if (strides[dim] == 0) tensor = tensor.narrow(static_cast<int64_t>(dim), 0, 1);
  }
  return tensor;
}

}  // namespace

bool HasDefaultStrides(const at::Tensor& tensor) {
  int64_t stride = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
    if (tensor.stride(dim) != stride) return false;
    stride *= std::max<int64_t>(tensor.size(dim), 1);
  }
  return true;
}

int64_t ElementsSpanned(const at::Tensor& tensor) { return Span(tensor.sizes(), tensor.strides()); }

at::Tensor InOneRow(const at::Tensor& tensor) {
  const at::Tensor bare = tensor.detach();
  if (bare.is_non_overlapping_and_dense()) return bare.as_strided({bare.numel()}, {1});
  return bare.contiguous().view(-1);
}

at::Tensor FromOneRow(const at::Tensor& row, at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor whole = row.detach();
  SetGeometry(whole, sizes, strides);
  if (whole.is_non_overlapping_and_dense()) return whole;
  const at::Tensor memory = at::empty({Span(sizes, strides)}, row.options());
  const at::Tensor from = row.view(sizes), to = memory.as_strided(sizes, strides);
  if (row.numel() > 0) WithoutRepeats(to, strides).copy_(WithoutRepeats(from, strides));
  SetGeometry(memory, sizes, strides);
  return memory;
}

at::Tensor CloneAsItLies(const at::Tensor& tensor) {
  return FromOneRow(InOneRow(tensor).clone(), tensor.sizes(), tensor.strides());
}

}  // namespace strata
