// Kernels on the meta device for operators that LibTorch computes on the CPU and for which it has
// none in C++ (PyTorch has them in Python). They give the shapes, strides and types of the results
// as the kernels of the CPU do; dry_run_test compares each with the real one. Where another
// operator that has such a kernel gives the same results, that one is called.
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/tensors/dry_run.h"

namespace strata {
namespace {

using at::IntArrayRef;
using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Mask = std::array<bool, 3>;
using Reduction = int64_t;

Tensor Like(const Tensor& x) { return at::empty_like(x); }
Tensor LikeContiguous(const Tensor& x) {
  return at::empty_like(x, {}, at::MemoryFormat::Contiguous);
}
Tensor LikeIf(bool wanted, const Tensor& x) { return wanted ? Like(x) : Tensor(); }
/// A tensor of these sizes in the layout of images (channels_last or not) that x suggests.
Tensor InLayoutOf(const Tensor& x, IntArrayRef sizes) {
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}
/// The sizes of x with others for its last dims.
std::vector<int64_t> WithLast(const Tensor& x, IntArrayRef last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  std::copy(last.begin(), last.end(), sizes.end() - static_cast<int64_t>(last.size()));
  return sizes;
}
/// Gives `out` the shape of the result that an operator would allocate.
Tensor& Shape(Tensor& out, const Tensor& result) {
  if (out.sizes() == result.sizes()) return out;
  out.resize_(result.sizes());
  out.as_strided_(result.sizes(), result.strides());
  return out;
}
Tensor Reduced(const Tensor& loss, Reduction reduction) {
  return reduction == 0 ? Like(loss) : at::empty({}, loss.options());
}

// ---- Of single elements

Tensor Unary(const Tensor& x) { return at::clamp_min(x, 0); }
Tensor Flags(const Tensor& x) { return at::ne(x, 0); }

Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  const Tensor both = at::add(x, y);
  return at::empty(at::infer_size(condition.sizes(), both.sizes()), both.options());
}

void RegisterElements(torch::Library& m) {
  m.impl("relu", Unary);
  m.impl("hardswish", Unary);
  m.impl("hardtanh",
         [](const Tensor& x, const at::Scalar&, const at::Scalar&) { return Unary(x); });
  m.impl("logit", [](const Tensor& x, std::optional<double>) { return Unary(x); });
  m.impl("isnan", Flags);
  m.impl("abs.out", [](const Tensor& x, Tensor& out) -> Tensor& { return Shape(out, Unary(x)); });
  m.impl("logical_not.out",
         [](const Tensor& x, Tensor& out) -> Tensor& { return Shape(out, Flags(x)); });
  for (const char* name : {"logical_and.out", "logical_or.out", "logical_xor.out"}) {
    m.impl(name, [](const Tensor& x, const Tensor& y, Tensor& out) -> Tensor& {
      return Shape(out, at::ne(x, y));
    });
  }
  m.impl("floor_divide", [](const Tensor& x, const Tensor& y) { return at::div(x, y, "floor"); });
  m.impl("rsub.Tensor", [](const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
    return at::sub(y, x, alpha);
  });
  m.impl("where.self", Where);
  m.impl("where.self_out",
         [](const Tensor& condition, const Tensor& x, const Tensor& y, Tensor& out) -> Tensor& {
           return Shape(out, Where(condition, x, y));
         });
  m.impl("hardswish_backward", [](const Tensor& dy, const Tensor& x) { return at::add(dy, x); });
  m.impl("mish_backward", [](const Tensor& dy, const Tensor& x) { return at::add(dy, x); });
  m.impl("hardtanh_backward", [](const Tensor& dy, const Tensor& x, const at::Scalar&,
                                 const at::Scalar&) { return at::add(dy, x); });
  m.impl("log_sigmoid_forward",
         [](const Tensor& x) { return Two(LikeContiguous(x), LikeContiguous(x)); });
  m.impl("log_sigmoid_backward",
         [](const Tensor& dy, const Tensor&, const Tensor&) { return Like(dy); });
  m.impl("glu_backward", [](const Tensor&, const Tensor& x, int64_t) { return LikeContiguous(x); });
  m.impl("_prelu_kernel", [](const Tensor& x, const Tensor& weight) { return at::add(x, weight); });
  m.impl("_prelu_kernel_backward", [](const Tensor& dy, const Tensor& x, const Tensor&) {
    return Two(at::add(x, dy), at::add(x, dy));
  });
}

// ---- Reductions, and elements at other places

Tensor MeanOver(const Tensor& x, at::OptionalIntArrayRef dim,
                const std::optional<at::Scalar>& /*correction*/, bool keepdim) {
  return at::mean(x, dim, keepdim);
}

void RegisterPlaces(torch::Library& m) {
  m.impl("var.correction", MeanOver);
  m.impl("std.correction", MeanOver);
  m.impl("var_mean.correction", [](const Tensor& x, at::OptionalIntArrayRef dim,
                                   const std::optional<at::Scalar>& by, bool keepdim) {
    return Two(MeanOver(x, dim, by, keepdim), MeanOver(x, dim, by, keepdim));
  });
  m.impl("max", [](const Tensor& x) { return at::empty({}, x.options()); });
  m.impl("min", [](const Tensor& x) { return at::empty({}, x.options()); });
  m.impl("prod",
         [](const Tensor& x, std::optional<at::ScalarType> type) { return at::sum(x, type); });
  m.impl("dot", [](const Tensor& x, const Tensor&) { return at::empty({}, x.options()); });
  m.impl("flip", [](const Tensor& x, IntArrayRef) { return Like(x); });
  m.impl("roll", [](const Tensor& x, IntArrayRef, IntArrayRef) { return LikeContiguous(x); });
  m.impl("_stack", [](at::TensorList tensors, int64_t dim) {
    std::vector<Tensor> parts;
    for (const Tensor& tensor : tensors) parts.push_back(tensor.unsqueeze(dim));
    return at::cat(parts, dim);
  });
  m.impl("index_select", [](const Tensor& x, int64_t dim, const Tensor& index) {
    std::vector<int64_t> sizes = x.sizes().vec();
    if (!sizes.empty()) sizes[at::maybe_wrap_dim(dim, x.dim())] = index.numel();
    return at::empty(sizes, x.options());
  });
  m.impl("embedding_dense_backward",
         [](const Tensor& dy, const Tensor&, int64_t rows, int64_t, bool) {
           return at::empty({rows, dy.size(-1)}, dy.options());
         });
  m.impl("unfold_backward", [](const Tensor& dy, IntArrayRef sizes, int64_t, int64_t, int64_t) {
    return at::empty(sizes, dy.options());
  });
}

// ---- Layers

/// The type of statistics: float32 for half precision with parameters in float32.
at::TensorOptions StatisticsOptions(const Tensor& x, const MaybeTensor& weight) {
  const bool mixed = at::isReducedFloatingType(x.scalar_type()) && weight && weight->defined() &&
                     weight->scalar_type() == at::kFloat;
  return x.options().dtype(mixed ? at::kFloat : x.scalar_type());
}

/// Gradients of a norm: of the input, and of weight and bias in the shape of one of them.
Three NormGradients(const Tensor& x, const MaybeTensor& weight, int64_t channels,
                    const Mask& wanted) {
  const bool has_weight = weight && weight->defined();
  const at::TensorOptions options = has_weight ? weight->options() : x.options();
  const auto parameter = [&](bool is_wanted) {
    return is_wanted ? at::empty({channels}, options) : Tensor();
  };
  return {LikeIf(wanted[0], x), parameter(wanted[1]), parameter(wanted[2])};
}

Three LayerNorm(const Tensor& x, IntArrayRef shape, const MaybeTensor& weight, const MaybeTensor&,
                double) {
  const std::vector<int64_t> ones(shape.size(), 1);
  const std::vector<int64_t> rows = WithLast(x, ones);
  const at::TensorOptions options = StatisticsOptions(x, weight);
  return {LikeContiguous(x), at::empty(rows, options), at::empty(rows, options)};
}

Three LayerNormBackward(const Tensor&, const Tensor& x, IntArrayRef, const Tensor&, const Tensor&,
                        const MaybeTensor& weight, const MaybeTensor& bias, Mask wanted) {
  const auto of = [](bool is_wanted, const MaybeTensor& parameter) {
    return is_wanted && parameter ? LikeIf(parameter->defined(), *parameter) : Tensor();
  };
  return {wanted[0] ? LikeContiguous(x) : Tensor(), of(wanted[1], weight), of(wanted[2], bias)};
}

Three GroupNorm(const Tensor& x, const MaybeTensor& weight, const MaybeTensor&, int64_t n, int64_t,
                int64_t, int64_t groups, double) {
  const at::TensorOptions options = StatisticsOptions(x, weight);
  return {Like(x), at::empty({n, groups}, options), at::empty({n, groups}, options)};
}

Three BatchNorm(const Tensor& x, const MaybeTensor& weight, const MaybeTensor&, const MaybeTensor&,
                const MaybeTensor&, bool training, double, double) {
  const int64_t channels = training ? x.size(1) : 0;
  const at::TensorOptions options = StatisticsOptions(x, weight);
  return {Like(x), at::empty({channels}, options), at::empty({channels}, options)};
}

void RegisterNorms(torch::Library& m) {
  m.impl("native_layer_norm", LayerNorm);
  m.impl("native_layer_norm_backward", LayerNormBackward);
  m.impl("native_group_norm", GroupNorm);
  m.impl("native_group_norm_backward",
         [](const Tensor&, const Tensor& x, const Tensor&, const Tensor&, const MaybeTensor& weight,
            int64_t, int64_t channels, int64_t, int64_t,
            Mask wanted) { return NormGradients(x, weight, channels, wanted); });
  m.impl("native_batch_norm", BatchNorm);
  m.impl("native_batch_norm_backward",
         [](const Tensor&, const Tensor& x, const MaybeTensor& weight, const MaybeTensor&,
            const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, bool, double,
            Mask wanted) { return NormGradients(x, weight, x.size(1), wanted); });
}

/// Attention on (batch, heads, positions, features).
Two Attention(const Tensor& q, const Tensor&, const Tensor&, double, bool, const MaybeTensor&,
              std::optional<double>) {
  const auto options = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {Like(q), at::empty({q.size(0), q.size(2), q.size(1)}, options).transpose(1, 2)};
}

/// A gradient of attention, which lies in memory as (batch, positions, heads, features).
Tensor AttentionGradient(const Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

/// The number of outputs along one dim of a convolution.
int64_t ConvolvedSize(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t dilation, bool transposed, int64_t more) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  if (transposed) return (size - 1) * stride - 2 * padding + reach + more;
  return (size + 2 * padding - reach) / stride + 1;
}

Tensor Convolution(const Tensor& x, const Tensor& weight, const MaybeTensor&, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef more,
                   int64_t groups) {
  TORCH_CHECK(x.dim() == weight.dim() &&
                  x.size(1) == weight.size(transposed ? 0 : 1) * (transposed ? 1 : groups),
              "a convolution of ", x.sizes(), " with weights ", weight.sizes(), " in ", groups,
              " groups");
  std::vector<int64_t> sizes = {x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 2; i < x.dim(); ++i) {
    const auto at = [&](IntArrayRef values) { return values[values.size() > 1 ? i - 2 : 0]; };
    sizes.push_back(ConvolvedSize(x.size(i), weight.size(i), at(stride), at(padding), at(dilation),
                                  transposed, transposed ? at(more) : 0));
    TORCH_CHECK(sizes.back() > 0, "a convolution of ", x.sizes(), " with weights ", weight.sizes(),
                " has no output");
  }
  return InLayoutOf(x, sizes);
}

Three ConvolutionBackward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                          at::OptionalIntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef,
                          bool transposed, IntArrayRef, int64_t groups, Mask wanted) {
  const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
  return {LikeIf(wanted[0], x), LikeIf(wanted[1], weight),
          wanted[2] ? at::empty({outputs}, dy.options()) : Tensor()};
}

/// (batch, channels, height, width) to (batch, channels * window, positions); without batch too.
Tensor Unfolded(const Tensor& x, IntArrayRef window, IntArrayRef dilation, IntArrayRef padding,
                IntArrayRef stride) {
  int64_t positions = 1;
  for (int64_t i = 0; i < 2; ++i) {
    positions *=
        ConvolvedSize(x.size(i - 2), window[i], stride[i], padding[i], dilation[i], false, 0);
  }
  std::vector<int64_t> sizes = {x.size(-3) * window[0] * window[1], positions};
  if (x.dim() == 4) sizes.insert(sizes.begin(), x.size(0));
  return at::empty(sizes, x.options());
}

/// The opposite of Unfolded().
Tensor Folded(const Tensor& x, IntArrayRef size, IntArrayRef window) {
  std::vector<int64_t> sizes = {x.size(-2) / (window[0] * window[1]), size[0], size[1]};
  if (x.dim() == 3) sizes.insert(sizes.begin(), x.size(0));
  return at::empty(sizes, x.options());
}

/// The sizes of an image with `padding` (left, right, top, bottom) around it.
std::vector<int64_t> Padded(const Tensor& x, IntArrayRef padding) {
  return WithLast(x, {x.size(-2) + padding[2] + padding[3], x.size(-1) + padding[0] + padding[1]});
}

void RegisterLayers(torch::Library& m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", Attention);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
         [](const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
            const Tensor&, double, bool, const MaybeTensor&, std::optional<double>) {
           return Three(AttentionGradient(q), AttentionGradient(k), AttentionGradient(v));
         });
  m.impl("convolution", Convolution);
  m.impl("convolution_backward", ConvolutionBackward);
  m.impl("im2col", Unfolded);
  m.impl("col2im", [](const Tensor& x, IntArrayRef size, IntArrayRef window, IntArrayRef,
                      IntArrayRef, IntArrayRef) { return Folded(x, size, window); });
  m.impl("_adaptive_avg_pool2d",
         [](const Tensor& x, IntArrayRef size) { return InLayoutOf(x, WithLast(x, size)); });
  m.impl("_adaptive_avg_pool2d_backward", [](const Tensor&, const Tensor& x) { return Like(x); });
  m.impl("reflection_pad2d",
         [](const Tensor& x, IntArrayRef padding) { return InLayoutOf(x, Padded(x, padding)); });
  m.impl("reflection_pad2d_backward",
         [](const Tensor&, const Tensor& x, IntArrayRef) { return Like(x); });
  m.impl("grid_sampler_2d", [](const Tensor& x, const Tensor& grid, int64_t, int64_t, bool) {
    return at::empty({x.size(0), x.size(1), grid.size(1), grid.size(2)}, x.options());
  });
  m.impl("grid_sampler_2d_backward", [](const Tensor&, const Tensor& x, const Tensor& grid, int64_t,
                                        int64_t, bool, std::array<bool, 2> wanted) {
    return Two(wanted[0] ? LikeContiguous(x) : Tensor(), LikeContiguous(grid));
  });
}

void RegisterLosses(torch::Library& m) {
  m.impl("mse_loss_backward", [](const Tensor& dy, const Tensor& x, const Tensor& target,
                                 Reduction) { return at::add(at::sub(x, target), dy); });
  m.impl("huber_loss", [](const Tensor& x, const Tensor& target, Reduction reduction, double) {
    return Reduced(at::sub(x, target), reduction);
  });
  for (const char* name : {"huber_loss_backward.out", "smooth_l1_loss_backward.grad_input"}) {
    m.impl(name,
           [](const Tensor&, const Tensor& x, const Tensor&, Reduction, double,
              Tensor& dx) -> Tensor& { return Shape(dx, x); });
  }
  m.impl("binary_cross_entropy", [](const Tensor& x, const Tensor&, const MaybeTensor&,
                                    Reduction reduction) { return Reduced(x, reduction); });
  m.impl("binary_cross_entropy_backward", [](const Tensor&, const Tensor& x, const Tensor&,
                                             const MaybeTensor&, Reduction) { return Like(x); });
  m.impl("nll_loss2d_forward", [](const Tensor& x, const Tensor& target, const MaybeTensor&,
                                  Reduction reduction, int64_t) {
    const auto sizes = reduction == 0 ? target.sizes() : IntArrayRef();
    return Two(at::empty(sizes, x.options()), at::empty({}, x.options()));
  });
  m.impl("nll_loss2d_backward",
         [](const Tensor&, const Tensor& x, const Tensor&, const MaybeTensor&, Reduction, int64_t,
            const Tensor&) { return LikeContiguous(x); });
}

}  // namespace

void RegisterMetaKernels() {
  // Registrations live as long as the process.
  static auto* kernels =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  RegisterElements(*kernels);
  RegisterPlaces(*kernels);
  RegisterNorms(*kernels);
  RegisterLayers(*kernels);
  RegisterLosses(*kernels);
}

}  // namespace strata
