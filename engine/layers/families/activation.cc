// The activations: ReLU, GELU, SiLU, Tanh, Sigmoid, Softmax and LeakyReLU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <functional>
#include <utility>

#include "engine/layers/families.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

using Function = std::function<at::Tensor(at::Tensor)>;

/// A function of one tensor. It also has an in-place form, if the user asked for one and it saves
/// memory.
class Activation : public UnaryLayer {
 public:
  explicit Activation(Function function, OutputMemory memory = OutputMemory::kKept)
      : function_(std::move(function)), memory_(memory) {}
  void set_in_place(Function function) { in_place_ = std::move(function); }
  OutputMemory output_memory() const override { return memory_; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override {
    if (!in_place_) return function_(x);
    // Through a view, autograd would lay the gradient out as the memory behind it, which no cut
    // does.
    const bool has_base = x.requires_grad() && x.is_view();
    if (may_overwrite_input_ && !has_base) return in_place_(x);
    at::Tensor y = function_(x);
    // In place, the result lies as the input. Out of place, ATen may choose other strides for dims
    // of one element, by which operators behind choose their kernels.
    return y.strides() == x.strides() ? y : in_place_(x.clone());
  }

 private:
  Function function_;
  Function in_place_;
  OutputMemory memory_;
};

/// The dim that PyTorch chooses for a Softmax without a dim.
int64_t DefaultSoftmaxDim(int64_t dims) { return dims == 0 || dims == 1 || dims == 3 ? 0 : 1; }

std::unique_ptr<Activation> Make(Function function, OutputMemory memory = OutputMemory::kKept) {
  return std::make_unique<Activation>(std::move(function), memory);
}

std::unique_ptr<Layer> MakeReLU(const Value& args) {
  auto layer = Make([](at::Tensor x) { return at::relu(x); });
  if (args["inplace"].as_bool()) {
    layer->set_in_place([](at::Tensor x) { return at::relu_(x); });
  }
  return layer;
}

std::unique_ptr<Layer> MakeLeakyReLU(const Value& args) {
  const double slope = args["negative_slope"].as_double();
  auto layer = Make([slope](at::Tensor x) { return at::leaky_relu(x, slope); });
  // In place, the gradient is computed from the result. Only with a slope > 0 does the result's
  // sign tell the sign of the input.
  if (args["inplace"].as_bool() && slope > 0) {
    layer->set_in_place([slope](at::Tensor x) { return at::leaky_relu_(x, slope); });
  }
  return layer;
}

std::unique_ptr<Layer> MakeSoftmax(const Value& args) {
  if (args["dim"].is_null()) {
    return Make([](at::Tensor x) { return at::softmax(x, DefaultSoftmaxDim(x.dim())); });
  }
  const int64_t dim = args["dim"].as_int();
  return Make([dim](at::Tensor x) { return at::softmax(x, dim); });
}

}  // namespace

std::unique_ptr<Layer> MakeActivation(const LayerSpec& spec, const BuildContext&) {
  const std::string& type = spec.type;
  if (type == "ReLU") return MakeReLU(spec.args);
  if (type == "LeakyReLU") return MakeLeakyReLU(spec.args);
  if (type == "Softmax") return MakeSoftmax(spec.args);
  if (type == "Tanh") return Make([](at::Tensor x) { return at::tanh(x); });
  if (type == "Sigmoid") return Make([](at::Tensor x) { return at::sigmoid(x); });
  // SiLU has no in-place form: its backward needs the input, so it would save no memory.
  if (type == "SiLU") return Make([](at::Tensor x) { return at::silu(x); }, OutputMemory::kFresh);
  STRATA_CHECK(type == "GELU") << "no activation " << type;
  const std::string approximate = spec.args["approximate"].as_string();
  return Make([approximate](at::Tensor x) { return at::gelu(x, approximate); },
              OutputMemory::kFresh);
}

}  // namespace strata
