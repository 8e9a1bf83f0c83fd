// The activation layers and the ATen functions that they call.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold.h>

#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

double Number(const Value& args, const char* name) { return args[name].as_double(); }

/// The dim of a Softmax. If the arguments have none, it is the one that PyTorch chooses.
int64_t SoftmaxDim(const at::Tensor& x, const Value& args) {
  if (!args["dim"].is_null()) return args["dim"].as_int();
  return x.dim() == 0 || x.dim() == 1 || x.dim() == 3 ? 0 : 1;
}

/// LeakyReLU that may overwrite x. In place, the gradient is computed from the result, which has
/// the sign of the input only if the slope is above 0. For other slopes x is not overwritten.
at::Tensor OverwriteLeaky(const at::Tensor& x, const Value& args) {
  const double slope = Number(args, "negative_slope");
  at::Tensor y = x;
  return slope > 0 ? at::leaky_relu_(y, slope) : at::leaky_relu(x, slope);
}

class PRelu : public UnaryLayer {
 public:
  explicit PRelu(const Value& args) {
    AddParameter("weight", Ones({args["num_parameters"].as_int()}).mul_(Number(args, "init")));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override {
    return at::prelu(x, parameters_[0].value);
  }
};

using T = at::Tensor;
using Args = Value;

/// A row has a second function if `inplace = true` saves memory and does not change the bits. It
/// would save nothing for SiLU, Mish, Hardswish and Hardsigmoid, whose backward needs the input,
/// and would change the bits of ELU, SELU and CELU, whose backward would use the result.
constexpr LayerEntry kLayers[] = {
    {"ReLU", [](const T& x, const Args&) { return at::relu(x); },
     [](const T& x, const Args&) { return T(x).relu_(); }},
    {"GELU", [](const T& x, const Args& a) { return at::gelu(x, a["approximate"].as_string()); }},
    {"SiLU", [](const T& x, const Args&) { return at::silu(x); }},
    {"Tanh", [](const T& x, const Args&) { return at::tanh(x); }},
    {"Sigmoid", [](const T& x, const Args&) { return at::sigmoid(x); }},
    {"Softmax", [](const T& x, const Args& a) { return at::softmax(x, SoftmaxDim(x, a)); }},
    {"LeakyReLU",
     [](const T& x, const Args& a) { return at::leaky_relu(x, Number(a, "negative_slope")); },
     OverwriteLeaky},
    {"ELU", [](const T& x, const Args& a) { return at::elu(x, Number(a, "alpha")); }},
    {"SELU", [](const T& x, const Args&) { return at::selu(x); }},
    {"CELU", [](const T& x, const Args& a) { return at::celu(x, Number(a, "alpha")); }},
    {"Softplus",
     [](const T& x, const Args& a) {
       return at::softplus(x, Number(a, "beta"), Number(a, "threshold"));
     }},
    {"Softsign", [](const T& x, const Args&) { return x.div(x.abs().add(1)); }},
    {"Hardswish", [](const T& x, const Args&) { return at::hardswish(x); }},
    {"Hardsigmoid", [](const T& x, const Args&) { return at::hardsigmoid(x); }},
    {"Hardtanh",
     [](const T& x, const Args& a) {
       return at::hardtanh(x, Number(a, "min_val"), Number(a, "max_val"));
     },
     [](const T& x, const Args& a) {
       T y = x;
       return at::hardtanh_(y, Number(a, "min_val"), Number(a, "max_val"));
     }},
    {"ReLU6", [](const T& x, const Args&) { return at::hardtanh(x, 0, 6); },
     [](const T& x, const Args&) {
       T y = x;
       return at::hardtanh_(y, 0, 6);
     }},
    {"Mish", [](const T& x, const Args&) { return at::mish(x); }},
    {"LogSoftmax", [](const T& x, const Args& a) { return at::log_softmax(x, SoftmaxDim(x, a)); }},
    {"LogSigmoid", [](const T& x, const Args&) { return at::log_sigmoid(x); }},
    {"Tanhshrink", [](const T& x, const Args&) { return x.sub(x.tanh()); }},
    {"Softshrink", [](const T& x, const Args& a) { return at::softshrink(x, Number(a, "lambd")); }},
    {"Hardshrink", [](const T& x, const Args& a) { return at::hardshrink(x, Number(a, "lambd")); }},
    {"Threshold",
     [](const T& x, const Args& a) {
       return at::threshold(x, Number(a, "threshold"), Number(a, "value"));
     }},
    {"GLU", [](const T& x, const Args& a) { return at::glu(x, a["dim"].as_int()); }},
    {"PReLU", New<PRelu>},
};

}  // namespace

LayerTable ActivationLayers() { return kLayers; }

}  // namespace strata
