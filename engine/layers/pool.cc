// The pooling layers, over the last 1 to 3 dims.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/adaptive_max_pool1d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>

#include <optional>
#include <tuple>
#include <vector>

#include "engine/layers/families.h"

namespace strata {
namespace {

template <int dims>
at::Tensor MaxPool(const at::Tensor& x, const Value& args) {
  const auto pool = dims == 1 ? at::max_pool1d : dims == 2 ? at::max_pool2d : at::max_pool3d;
  return pool(x, args["kernel_size"].as_ints(), args["stride"].as_ints(), args["padding"].as_ints(),
              args["dilation"].as_ints(), args["ceil_mode"].as_bool());
}

template <int dims>
at::Tensor AvgPool(const at::Tensor& x, const Value& args) {
  const auto kernel = args["kernel_size"].as_ints(), stride = args["stride"].as_ints();
  const auto padding = args["padding"].as_ints();
  const bool ceil_mode = args["ceil_mode"].as_bool(), pads = args["count_include_pad"].as_bool();
  if constexpr (dims == 1) {
    return at::avg_pool1d(x, kernel, stride, padding, ceil_mode, pads);
  } else {
    const Value& given = args["divisor_override"];
    const auto divisor = given.is_null() ? std::nullopt : std::make_optional(given.as_int());
    const auto pool = dims == 2 ? at::avg_pool2d : at::avg_pool3d;
    // On the CPU at::avg_pool3d has no kernel for half types.
    const bool widens = dims == 3 && x.is_cpu() && at::isReducedFloatingType(x.scalar_type());
    return pool(widens ? x.to(at::kFloat) : x, kernel, stride, padding, ceil_mode, pads, divisor)
        .to(x.scalar_type());
  }
}

/// The argument output_size, in which null means the input's size in that dim.
std::vector<int64_t> AdaptiveSize(const at::Tensor& x, const Value& args) {
  const Value::List& sizes = args["output_size"].as_list();
  std::vector<int64_t> output;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = x.dim() - static_cast<int64_t>(sizes.size() - i);
    output.push_back(sizes[i].is_null() ? x.size(dim) : sizes[i].as_int());
  }
  return output;
}

template <at::Tensor (*pool)(const at::Tensor&, at::IntArrayRef)>
at::Tensor AdaptiveAvg(const at::Tensor& x, const Value& args) {
  return pool(x, AdaptiveSize(x, args));
}

template <std::tuple<at::Tensor, at::Tensor> (*pool)(const at::Tensor&, at::IntArrayRef)>
at::Tensor AdaptiveMax(const at::Tensor& x, const Value& args) {
  return std::get<0>(pool(x, AdaptiveSize(x, args)));
}

constexpr LayerEntry kLayers[] = {
    {"MaxPool1d", MaxPool<1>},
    {"MaxPool2d", MaxPool<2>},
    {"MaxPool3d", MaxPool<3>},
    {"AvgPool1d", AvgPool<1>},
    {"AvgPool2d", AvgPool<2>},
    {"AvgPool3d", AvgPool<3>},
    {"AdaptiveAvgPool1d", AdaptiveAvg<at::adaptive_avg_pool1d>},
    {"AdaptiveAvgPool2d", AdaptiveAvg<at::adaptive_avg_pool2d>},
    {"AdaptiveAvgPool3d", AdaptiveAvg<at::adaptive_avg_pool3d>},
    {"AdaptiveMaxPool1d", AdaptiveMax<at::adaptive_max_pool1d>},
    {"AdaptiveMaxPool2d", AdaptiveMax<at::adaptive_max_pool2d>},
    {"AdaptiveMaxPool3d", AdaptiveMax<at::adaptive_max_pool3d>},
};

}  // namespace

LayerTable PoolingLayers() { return kLayers; }

}  // namespace strata
