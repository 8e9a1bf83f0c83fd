// The pooling layers: MaxPool2d, AvgPool2d and AdaptiveAvgPool2d.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "engine/layers/families.h"
#include "engine/layers/kernels/max_pool.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

using Ints = std::vector<int64_t>;

class Pool : public UnaryLayer {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit Pool(Function function) : function_(std::move(function)) {}
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override { return function_(x); }

 private:
  Function function_;
};

/// The windows of MaxPool2d and AvgPool2d.
struct Windows {
  Ints kernel;
  Ints stride;  ///< the kernel's sizes when the user gives none
  Ints padding;
  bool ceil_mode;

  explicit Windows(const Value& args)
      : kernel(args["kernel_size"].as_ints()),
        stride(args["stride"].is_null() ? kernel : args["stride"].as_ints()),
        padding(args["padding"].as_ints()),
        ceil_mode(args["ceil_mode"].as_bool()) {}
};

Pool::Function MaxPool(const Value& args) {
  const Windows w(args);
  return
      [windows = PoolWindows{w.kernel, w.stride, w.padding, args["dilation"].as_ints(),
                             w.ceil_mode}](const at::Tensor& x) { return MaxPool2d(x, windows); };
}

Pool::Function AvgPool(const Value& args) {
  std::optional<int64_t> divisor;
  if (!args["divisor_override"].is_null()) divisor = args["divisor_override"].as_int();
  const bool count_include_pad = args["count_include_pad"].as_bool();
  return [w = Windows(args), count_include_pad, divisor](const at::Tensor& x) {
    return at::avg_pool2d(x, w.kernel, w.stride, w.padding, w.ceil_mode, count_include_pad,
                          divisor);
  };
}

/// AdaptiveAvgPool2d. A null in output_size keeps the input's size in that dim.
Pool::Function AdaptiveAvgPool(const Value& args) {
  return [sizes = args["output_size"].as_list()](const at::Tensor& x) {
    Ints output;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t dim = x.dim() - static_cast<int64_t>(sizes.size() - i);
      output.push_back(sizes[i].is_null() ? x.size(dim) : sizes[i].as_int());
    }
    return at::adaptive_avg_pool2d(x, output);
  };
}

}  // namespace

std::unique_ptr<Layer> MakePool(const LayerSpec& spec, const BuildContext&) {
  if (spec.type == "MaxPool2d") return std::make_unique<Pool>(MaxPool(spec.args));
  if (spec.type == "AvgPool2d") return std::make_unique<Pool>(AvgPool(spec.args));
  STRATA_CHECK(spec.type == "AdaptiveAvgPool2d") << "no pool " << spec.type;
  return std::make_unique<Pool>(AdaptiveAvgPool(spec.args));
}

}  // namespace strata
