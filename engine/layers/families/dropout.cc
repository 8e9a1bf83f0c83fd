#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/families/dropout.h"

#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <memory>
#include <tuple>
#include <utility>

#include "engine/layers/families.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

/// inplace=true has no effect, since the output needs memory of its own for the backward pass.
class Dropout : public UnaryLayer {
 public:
  Dropout(const LayerSpec& spec, const BuildContext& context)
      : p_(spec.Number("p")),
        axis_(spec.input_shard ? context.axis : nullptr),
        dim_(spec.input_shard.value_or(-1)) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    return ApplyDropout(x, p_, pass.training, {axis_.get(), dim_});
  }

 private:
  const double p_;
  const std::shared_ptr<AxisComm> axis_;  // null: the input is whole
  const int64_t dim_;
};

constexpr LayerEntry kLayers[] = {{"Dropout", New<Dropout>}};

/// The factors (0 or 1 / (1 - p)) of a whole tensor, drawn as the operators below draw them.
at::Tensor Factors(at::IntArrayRef sizes, const at::TensorOptions& options, double p) {
  if (!options.device().is_cuda()) {
    return at::empty(sizes, options).bernoulli_(1 - p).div_(1 - p);
  }
  const at::Tensor kept = std::get<1>(at::_fused_dropout(at::ones(sizes, options), 1 - p));
  return kept.to(options).div_(1 - p);
}

}  // namespace

at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training, const Part& part) {
  if (part.axis && training && p > 0 && p < 1) {
    return x.mul(part.Of(Factors(part.WholeSizes(x.sizes()), x.options(), p)));
  }
  // On CUDA at::dropout takes no generator, but at::_fused_dropout does.
  if (x.is_cuda() && training && p > 0 && p < 1) return std::get<0>(at::_fused_dropout(x, 1 - p));
  return at::dropout(x, p, training);
}

LayerTable DropoutLayers() { return kLayers; }

}  // namespace strata
