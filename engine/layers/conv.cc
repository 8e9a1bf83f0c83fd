// The convolutions and transposed convolutions over 1 to 3 dims. Winograd's algorithm (winograd.h),
// one matrix product over unfolded images, and ATen's convolution (oneDNN or cuDNN) compute them
// and their gradients; which one depends only on types and sizes.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Parallel.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/pad.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/tensors/kernel_scratch.h"
#include "engine/layers/conv_memory.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/kernels/add_to.h"
#include "engine/layers/kernels/half_product.h"
#include "engine/layers/kernels/product.h"
#include "engine/layers/kernels/row_product.h"
#include "engine/layers/kernels/winograd.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

namespace strata {
namespace {

/// The arguments of at::convolution that are not tensors.
struct Geometry {
  Shape stride;
  Shape padding;
  Shape dilation;
  bool transposed = false;
  Shape output_padding;
  int64_t groups = 1;
};

/// True if oneDNN may leave elements of the weight gradient unwritten: in half precision, kernel
/// elements that no input element meets, because the kernel is larger than the input (libtorch
/// notes, "Weight gradients that are not written").
bool LeavesPlaces(const at::Tensor& x, const at::Tensor& weight) {
  if (!x.is_cpu() || x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) return false;
  const at::IntArrayRef input = x.sizes().slice(2), kernel = weight.sizes().slice(2);
  return !std::ranges::equal(input, kernel, std::greater_equal<>());
}

/// True if the weight gradient is computed by AddUnfolded().
bool IsUnfolded(const Geometry& g, const at::Tensor& dy, const at::Tensor& weight) {
  return dy.is_cpu() && dy.scalar_type() == at::kFloat && dy.dim() == 4 && !g.transposed &&
         g.groups == 1 &&
         layers::PaysToUnfold(weight.numel(), weight.size(0), dy.numel() / dy.size(1));
}

/// Reorders a tensor (N, channels, positions) to (channels, N * positions).
at::Tensor ByChannel(const at::Tensor& t) { return t.transpose(0, 1).reshape({t.size(1), -1}); }

void AddUnfolded(const Geometry& g, const at::Tensor& dy, const at::Tensor& x,
                 const at::Tensor& dweight, bool overwrites) {
  const at::Tensor pictures =
      at::im2col(x, dweight.sizes().slice(2), g.dilation, g.padding, g.stride);
  products::Add(dweight.view({dweight.size(0), -1}), ByChannel(dy.flatten(2)),
                ByChannel(pictures).t(), overwrites);
}

/// True if Winograd's algorithm (winograd.h) computes the convolution and its gradients.
bool ByWinograd(const Geometry& g, const at::Tensor& x, const at::Tensor& weight) {
  const Shape ones = {1, 1};
  return g.stride == ones && g.padding == ones && g.dilation == ones && !g.transposed &&
         g.groups == 1 && winograd::Computes(x, weight);
}

class ConvNode : public WeightNode {
 public:
  ConvNode(const Geometry& geometry, const Pass& pass) : geometry_(geometry), stale_(pass.stale) {}

 private:
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight) override {
    if (ByWinograd(geometry_, x, weight)) return winograd::InputGradient(dy, weight);
    const at::ScalarType type = half_products::FastType(x);
    return std::get<0>(
               Backward(geometry_, dy.to(type), x.to(type), weight.to(type), {true, false, false}))
        .to(x.scalar_type());
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                       const at::Tensor& weight) override {
    return [=, geometry = geometry_, stale = stale_, dweight = weight_grad(), dbias = bias_grad()] {
      const bool is_stale = stale && stale->Take(dweight);
      const bool by_winograd = ByWinograd(geometry, x, weight);
      if (by_winograd || IsUnfolded(geometry, dy, weight)) {
        by_winograd ? winograd::AddWeightGradient(dweight, dy, x, is_stale)
                    : AddUnfolded(geometry, dy, x, dweight, is_stale);
        if (dbias.defined()) dbias.add_(dy.sum({0, 2, 3}));
        return;
      }
      const at::ScalarType type = LeavesPlaces(x, weight) ? at::kFloat : half_products::FastType(x);
      const auto [_, fresh_dweight, fresh_dbias] = Backward(
          geometry, dy.to(type), x.to(type), weight.to(type), {false, true, dbias.defined()});
      // The products of other layers in half precision are rounded likewise.
      const at::Tensor rounded = fresh_dweight.to(x.scalar_type());
      is_stale ? void(dweight.copy_(rounded)) : AddTo(dweight, rounded);
      if (dbias.defined()) dbias.add_(fresh_dbias.to(x.scalar_type()));
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
  const std::shared_ptr<StaleGradients> stale_;
};

/// The padding that at::pad adds to the input before the convolution, which itself can only pad
/// with zeros, and equally on both sides.
struct OuterPadding {
  Shape sizes;       ///< for at::pad: before and behind, from the last dim on; empty = none
  std::string mode;  ///< for at::pad

  at::Tensor Apply(const at::Tensor& x) const {
    return sizes.empty() ? x : at::pad(x, sizes, mode);
  }
};

/// A convolution or transposed convolution.
class Conv : public UnaryLayer {
 public:
  Conv(const Shape& weight_shape, int64_t out_channels, bool bias, Geometry geometry,
       OuterPadding outer_padding)
      : geometry_(std::move(geometry)), outer_padding_(std::move(outer_padding)) {
    AddParameter("weight", KaimingUniform(weight_shape));
    parameters_[0].only_products = true;
    if (bias) AddParameter("bias", FanInBias(out_channels, FanIn(weight_shape)));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& input, const Pass& pass) override {
    const at::Tensor x = outer_padding_.Apply(input);
    const Parameter& weight = parameters_[0];
    const Parameter* bias = OptionalParameter(1);
    const auto b = bias ? std::make_optional(bias->value) : std::nullopt;
    const auto convolve = [&, &g = geometry_] {
      if (ByWinograd(g, x, weight.value)) return winograd::Convolve(x, weight.value, b);
      const at::ScalarType type = half_products::FastType(x);
      return at::convolution(x.to(type), weight.value.to(type),
                             b ? std::make_optional(b->to(type)) : b, g.stride, g.padding,
                             g.dilation, g.transposed, g.output_padding, g.groups)
          .to(x.scalar_type());
    };
    if (weight.frozen && !(b && b->requires_grad()) && SuitsWinograd(x)) {
      return RecordedFrozen(convolve, x, weight.value, winograd::InputGradient);
    }
    return Recorded<ConvNode>(convolve, x, weight, bias, pass, geometry_, pass);
  }

 private:
  /// ByWinograd() that does not mind if autograd records now, since RecordedFrozen() runs the
  /// operator without autograd.
  bool SuitsWinograd(const at::Tensor& x) const {
    const at::NoGradGuard no_grad;
    return ByWinograd(geometry_, x, parameters_[0].value);
  }

  const Geometry geometry_;
  const OuterPadding outer_padding_;
};

/// Padding before and behind one spatial dim.
struct Sides {
  int64_t before = 0;
  int64_t behind = 0;
};

/// The padding that the user gave, per spatial dim. If "same" needs an odd number of elements, the
/// additional one goes behind.
std::vector<Sides> PaddingOf(const Value& given, const Shape& kernel, const Shape& dilation) {
  std::vector<Sides> padding(kernel.size());
  if (!given.is_string()) {
    const Shape sizes = given.as_ints();
    for (size_t dim = 0; dim < sizes.size(); ++dim) padding[dim] = {sizes[dim], sizes[dim]};
  } else if (given.as_string() == "same") {
    for (size_t dim = 0; dim < kernel.size(); ++dim) {
      const int64_t reach = dilation[dim] * (kernel[dim] - 1);
      padding[dim] = {reach / 2, reach - reach / 2};
    }
  }
  return padding;  // "valid" means none
}

/// Puts the padding that the convolution can do itself (zeros, equally on both sides) into
/// `geometry`, and returns the rest.
OuterPadding SplitPadding(const std::vector<Sides>& padding, const std::string& mode,
                          Geometry& geometry) {
  const bool zeros = mode == "zeros";
  OuterPadding outer = {{}, zeros ? "constant" : mode};
  bool any = false;
  for (const auto& [before, behind] : padding) {
    const int64_t inner = zeros ? std::min(before, behind) : 0;
    geometry.padding.push_back(inner);
    outer.sizes.insert(outer.sizes.begin(), {before - inner, behind - inner});
    any |= before > inner || behind > inner;
  }
  if (!any) outer.sizes.clear();
  return outer;
}

std::unique_ptr<Layer> MakeConv(const LayerSpec& spec, const BuildContext&) {
  const Value& args = spec.args;
  const Shape kernel = args["kernel_size"].as_ints();

  Geometry geometry;
  geometry.stride = args["stride"].as_ints();
  geometry.dilation = args["dilation"].as_ints();
  geometry.groups = args["groups"].as_int();
  geometry.transposed = args.Has("output_padding");
  geometry.output_padding =
      geometry.transposed ? args["output_padding"].as_ints() : Shape(kernel.size(), 0);
  OuterPadding outer = SplitPadding(PaddingOf(args["padding"], kernel, geometry.dilation),
                                    args["padding_mode"].as_string(), geometry);

  return std::make_unique<Conv>(ParametersOf(spec)[0].shape, spec.Int("out_channels"),
                                spec.Bool("bias"), std::move(geometry), std::move(outer));
}

/// The convolution of aten::convolution or aten::convolution_backward, whose arguments from `x` on
/// are the input, the weight, the bias or its sizes, the stride, and so on.
layers::ConvCall CallOf(c10::ArrayRef<c10::IValue> arguments, size_t x, const at::Tensor& y) {
  const at::Tensor& input = arguments[x].toTensor();
  const auto ints = [&](size_t i) {
    const auto list = arguments[x + i].toDimVector();
    return Shape(list.begin(), list.end());
  };
  return {.input = input.sizes().vec(),
          .output = y.sizes().vec(),
          .window = arguments[x + 1].toTensor().sizes().slice(2).vec(),
          .stride = ints(3),
          .padding = ints(4),
          .dilation = ints(5),
          .is_transposed = arguments[x + 6].toBool(),
          .groups = arguments[x + 8].toInt(),
          .element_bytes = static_cast<int64_t>(input.element_size()),
          .threads = at::get_num_threads()};
}

int64_t ScratchOfForward(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results) {
  const layers::ConvCall call = CallOf(arguments, 0, results[0].toTensor());
  return static_cast<int64_t>(layers::ScratchOf(call).forward);
}

/// The input gradient is computed before the weight gradient, which is a result as well.
int64_t ScratchOfBackward(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue>) {
  const layers::ConvScratch scratch =
      layers::ScratchOf(CallOf(arguments, 1, arguments[0].toTensor()));
  const std::vector<bool> wanted = arguments[10].toBoolList().vec();
  double bytes = wanted[0] ? scratch.input_grad : 0;
  if (wanted[1]) {
    const auto result = static_cast<double>(arguments[2].toTensor().nbytes());
    bytes = std::max({bytes - result, scratch.weight_grad - result, 0.0});
  }
  return static_cast<int64_t>(bytes);
}

const bool knows_scratch = [] {
  SetKernelScratch("aten::convolution", ScratchOfForward);
  SetKernelScratch("aten::convolution_backward", ScratchOfBackward);
  return true;
}();

constexpr LayerEntry kLayers[] = {{"Conv1d", MakeConv},          {"Conv2d", MakeConv},
                                  {"Conv3d", MakeConv},          {"ConvTranspose1d", MakeConv},
                                  {"ConvTranspose2d", MakeConv}, {"ConvTranspose3d", MakeConv}};

}  // namespace

LayerTable ConvolutionLayers() { return kLayers; }

}  // namespace strata
