#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/row_product.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/layers/kernels/add_to.h"
#include "engine/layers/kernels/product.h"

namespace strata {
namespace {

/// One product of the rows of all products, one below the other.
RowProduct Join(std::vector<RowProduct> products) {
  RowProduct joined = std::move(products.front());
  if (products.size() == 1) return joined;
  std::vector<at::Tensor> dys = {std::move(joined.dy)}, xs = {std::move(joined.x)};
  for (size_t i = 1; i < products.size(); ++i) {
    dys.push_back(std::move(products[i].dy));
    xs.push_back(std::move(products[i].x));
  }
  joined.dy = at::cat(dys);
  joined.x = at::cat(xs);
  return joined;
}

}  // namespace

void StaleGradients::Mark(const at::Tensor& gradient) {
  by_place_.insert_or_assign(static_cast<const char*>(gradient.const_data_ptr()), gradient);
}

bool StaleGradients::Take(const at::Tensor& gradient) {
  const auto place = static_cast<const char*>(gradient.const_data_ptr());
  auto found = by_place_.upper_bound(place);
  if (found == by_place_.begin()) return false;
  --found;
  if (place >= found->first + found->second.nbytes()) return false;
  const at::Tensor whole = std::move(found->second);
  by_place_.erase(found);
  const bool is_whole = whole.numel() == gradient.numel();
  if (!is_whole) whole.zero_();
  return is_whole;
}

/// In half precision CUDA's products are added up in float32. On the CPU those of one micro-batch
/// are rounded, as PyTorch's are, and their sum over micro-batches is not.
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
  if (dbias.defined()) dbias.add_(dy.sum(0));
}

void JoinedProducts::Keep(RowProduct product) { kept_.push_back(std::move(product)); }

void JoinedProducts::Run() {
  const at::NoGradGuard no_grad;
  while (!kept_.empty()) {
    const void* weight = kept_.front().dweight.const_data_ptr();
    const auto others = std::stable_partition(
        kept_.begin(), kept_.end(),
        [&](const RowProduct& product) { return product.dweight.const_data_ptr() == weight; });
    std::vector<RowProduct> products(std::make_move_iterator(kept_.begin()),
                                     std::make_move_iterator(others));
    kept_.erase(kept_.begin(), others);
    Join(std::move(products)).Add();
  }
}

}  // namespace strata
