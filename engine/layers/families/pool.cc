// The pooling layers: MaxPool2d, AvgPool2d and AdaptiveAvgPool2d.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>

#include <optional>
#include <vector>

#include "engine/layers/families.h"
#include "engine/layers/kernels/max_pool.h"

namespace strata {
namespace {

at::Tensor MaxPool(const at::Tensor& x, const Value& args) {
  return MaxPool2d(
      x, {args["kernel_size"].as_ints(), args["stride"].as_ints(), args["padding"].as_ints(),
          args["dilation"].as_ints(), args["ceil_mode"].as_bool()});
}

at::Tensor AvgPool(const at::Tensor& x, const Value& args) {
  const Value& divisor = args["divisor_override"];
  return at::avg_pool2d(x, args["kernel_size"].as_ints(), args["stride"].as_ints(),
                        args["padding"].as_ints(), args["ceil_mode"].as_bool(),
                        args["count_include_pad"].as_bool(),
                        divisor.is_null() ? std::nullopt : std::make_optional(divisor.as_int()));
}

/// A null in output_size keeps the input's size in that dim.
at::Tensor AdaptiveAvgPool(const at::Tensor& x, const Value& args) {
  const Value::List& sizes = args["output_size"].as_list();
  std::vector<int64_t> output;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = x.dim() - static_cast<int64_t>(sizes.size() - i);
    output.push_back(sizes[i].is_null() ? x.size(dim) : sizes[i].as_int());
  }
  return at::adaptive_avg_pool2d(x, output);
}

constexpr LayerEntry kLayers[] = {
    {"MaxPool2d", MaxPool}, {"AvgPool2d", AvgPool}, {"AdaptiveAvgPool2d", AdaptiveAvgPool}};

}  // namespace

LayerTable PoolingLayers() { return kLayers; }

}  // namespace strata
