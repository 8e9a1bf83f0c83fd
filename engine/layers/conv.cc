#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <tuple>

#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

namespace strata {
namespace {

/// at::convolution's arguments beside the tensors.
struct Geometry {
  Shape stride;
  Shape padding;
  Shape dilation;
  bool transposed = false;
  Shape output_padding;
  int64_t groups = 1;
};

class ConvNode : public WeightNode {
 public:
  explicit ConvNode(const Geometry& geometry) : geometry_(geometry) {}

 private:
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight) override {
    return std::get<0>(Backward(geometry_, dy, x, weight, {true, false, false}));
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                       const at::Tensor& weight) override {
    return [=, geometry = geometry_, dweight = weight_grad(), dbias = bias_grad()] {
      const auto [_, fresh_dweight, fresh_dbias] =
          Backward(geometry, dy, x, weight, {false, true, dbias.defined()});
      dweight.add_(fresh_dweight);
      if (dbias.defined()) dbias.add_(fresh_dbias);
    };
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> Backward(const Geometry& g,
                                                                 const at::Tensor& dy,
                                                                 const at::Tensor& x,
                                                                 const at::Tensor& weight,
                                                                 std::array<bool, 3> wanted) {
    const int64_t outputs = dy.size(1);
    return at::convolution_backward(dy, x, weight, at::IntArrayRef(outputs), g.stride, g.padding,
                                    g.dilation, g.transposed, g.output_padding, g.groups, wanted);
  }

  const Geometry geometry_;
};

/// Conv1d, Conv2d and ConvTranspose2d.
class Conv : public UnaryLayer {
 public:
  Conv(const Shape& weight_shape, int64_t out_channels, bool bias, Geometry geometry,
       Shape extra_padding)
      : geometry_(std::move(geometry)), extra_padding_(std::move(extra_padding)) {
    AddParameter("weight", KaimingUniform(weight_shape));
    if (bias) AddParameter("bias", FanInBias(out_channels, FanIn(weight_shape)));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& input, const Pass& pass) override {
    const at::Tensor x =
        extra_padding_.empty() ? input : at::constant_pad_nd(input, extra_padding_, 0);
    const Parameter& weight = parameters_[0];
    const Parameter* bias = OptionalParameter(1);
    if (!TakesWeightNode(weight, pass)) return Convolve(x, weight, bias);
    at::Tensor y;
    {
      const at::NoGradGuard no_grad;
      y = Convolve(x, weight, bias);
    }
    return Record<ConvNode>(y, x, weight, bias, pass, geometry_);
  }

 private:
  at::Tensor Convolve(const at::Tensor& x, const Parameter& weight, const Parameter* bias) const {
    const Geometry& g = geometry_;
    return at::convolution(x, weight.value, bias ? bias->value : at::Tensor(), g.stride, g.padding,
                           g.dilation, g.transposed, g.output_padding, g.groups);
  }

  const Geometry geometry_;
  const Shape extra_padding_;  // constant_pad_nd's; only for an uneven padding="same"
};

/// What padding="same" means: PyTorch pads both sides alike and, where the sum is odd, puts the
/// one element more behind, with an extra padding of the input.
void PadSame(const Shape& kernel, Geometry& geometry, Shape& extra_padding) {
  geometry.padding.clear();
  bool uneven = false;
  Shape extra;
  for (size_t dim = 0; dim < kernel.size(); ++dim) {
    const int64_t total = geometry.dilation[dim] * (kernel[dim] - 1);
    geometry.padding.push_back(total / 2);
    uneven |= total % 2 != 0;
    extra.insert(extra.begin(), {0, total % 2});  // the last dim comes first
  }
  if (uneven) extra_padding = extra;
}

}  // namespace

std::unique_ptr<Layer> MakeConv(const LayerSpec& spec, LayerScript*) {
  const Value& args = spec.args;
  const int64_t inputs = args["in_channels"].as_int();
  const int64_t outputs = args["out_channels"].as_int();
  const Shape kernel = args["kernel_size"].as_ints();

  Geometry geometry;
  geometry.stride = args["stride"].as_ints();
  geometry.dilation = args["dilation"].as_ints();
  geometry.groups = args["groups"].as_int();
  geometry.transposed = args.Has("output_padding");
  geometry.output_padding =
      geometry.transposed ? args["output_padding"].as_ints() : Shape(kernel.size(), 0);
  Shape extra_padding;
  const Value& padding = args["padding"];
  if (!padding.is_string()) {
    geometry.padding = padding.as_ints();
  } else if (padding.as_string() == "same") {
    PadSame(kernel, geometry, extra_padding);
  } else {
    geometry.padding.assign(kernel.size(), 0);  // "valid"
  }

  Shape weight = {geometry.transposed ? inputs : outputs,
                  (geometry.transposed ? outputs : inputs) / geometry.groups};
  for (const int64_t size : kernel) weight.push_back(size);
  return std::make_unique<Conv>(weight, outputs, args["bias"].as_bool(), std::move(geometry),
                                std::move(extra_padding));
}

}  // namespace strata
