#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/row_product.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/layers/kernels/add_to.h"

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

/// In half precision the products of one micro-batch are rounded, as PyTorch's are, and their sum
/// over micro-batches is not.
void RowProduct::Add() const {
  if (dy.scalar_type() == dweight.scalar_type()) {
    dweight.addmm_(dy.t(), x);
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
