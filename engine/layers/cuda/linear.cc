// Replaces linear() on CUDA by a version whose result has aligned rows (rows.h) while it is
// computed: the weight is padded with further outputs, which are cut off again.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/linear_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/pad.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

#include "engine/layers/cuda/rows.h"

namespace strata {
namespace {

int64_t MissingOutputs(const at::Tensor& x, const at::Tensor& weight) {
  if (x.dim() == 0 || x.size(-1) == 0 || weight.dim() != 2) return 0;
  const int64_t in = x.size(-1);
  return MissingOfRows(x.scalar_type(), x.numel() / in, weight.size(0), in);
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const int64_t missing = MissingOutputs(x, weight);
  if (missing == 0) return at::compositeimplicitautograd::linear(x, weight, bias);
  const at::Tensor more = at::pad(weight, {0, 0, 0, missing});
  const auto more_bias = bias ? std::make_optional(at::pad(*bias, {0, missing})) : std::nullopt;
  return at::compositeimplicitautograd::linear(x, more, more_bias)
      .narrow(-1, 0, weight.size(0))
      .contiguous();
}

TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) { library.impl("linear", Linear); }
TORCH_LIBRARY_IMPL(aten, CUDA, library) { library.impl("linear", Linear); }

}  // namespace
}  // namespace strata
