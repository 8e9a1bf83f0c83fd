#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/dropout.h"

#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/dropout.h>

#include <tuple>

#include "engine/layers/families.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

class Dropout : public UnaryLayer {
 public:
  explicit Dropout(double p) : p_(p) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    return ApplyDropout(x, p_, pass.training);
  }

 private:
  const double p_;
};

}  // namespace

at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training) {
  // at::dropout's kernel for CUDA takes no generator; this one does.
  if (x.is_cuda() && training && p > 0 && p < 1) return std::get<0>(at::_fused_dropout(x, 1 - p));
  return at::dropout(x, p, training);
}

/// inplace=true changes nothing: the product needs its own memory for the backward pass anyway.
std::unique_ptr<Layer> MakeDropout(const LayerSpec& spec, LayerScript*) {
  return std::make_unique<Dropout>(spec.args["p"].as_double());
}

}  // namespace strata
