#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/row_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <iterator>
#include <utility>
#include <vector>

#include "engine/layers/cuda/column_sums.h"
#include "engine/layers/kernels/add_to.h"
#include "engine/layers/kernels/product.h"

namespace strata {

void StaleGradients::Mark(const at::Tensor& gradient) {
  by_place_.insert_or_assign(static_cast<const char*>(gradient.const_data_ptr()), gradient);
}

bool StaleGradients::Take(const at::Tensor& gradient) {
  const auto begin = static_cast<const char*>(gradient.const_data_ptr());
  const char* const end = begin + gradient.nbytes();
  const auto end_of = [](const auto& entry) { return entry.first + entry.second.nbytes(); };
  auto next = by_place_.upper_bound(begin);
  if (next != by_place_.begin() && end_of(*std::prev(next)) > begin) --next;
  std::vector<at::Tensor> stale;
  size_t inside = 0;  // bytes
  for (; next != by_place_.end() && next->first < end; next = by_place_.erase(next)) {
    if (next->first >= begin && end_of(*next) <= end) inside += next->second.nbytes();
    stale.push_back(next->second);
  }
  if (!stale.empty() && inside == gradient.nbytes()) return true;
  for (const at::Tensor& whole : stale) whole.zero_();
  return false;
}

/// In half precision the sum over micro-batches (dweight) is float32. On CUDA the product is
/// computed and added in float32. On the CPU each micro-batch's product is rounded to half
/// precision first, as in PyTorch.
void RowProduct::Add() const {
  const bool is_stale = stale && stale->Take(dweight);
  if (dy.scalar_type() == dweight.scalar_type()) {
    products::Add(dweight, dy.t(), x, is_stale);
  } else if (dy.is_cuda() && dweight.scalar_type() == at::kFloat) {
    at::Tensor sum = dweight;
    if (is_stale) {
      at::mm_out(sum, dy.t(), x, at::kFloat);
    } else {
      at::addmm_out(sum, sum, dy.t(), x, at::kFloat);
    }
  } else if (is_stale) {
    dweight.copy_(dy.t().mm(x));
  } else {
    AddTo(dweight, dy.t().mm(x));
  }
  if (dbias.defined() && !AddColumnSumsByKernel(dy, dbias)) dbias.add_(dy.sum(0));
}

}  // namespace strata
