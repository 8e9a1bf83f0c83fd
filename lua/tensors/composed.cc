#include "lua/tensors/composed.h"

#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/base/text.h"

namespace strata::lua {
namespace {

using at::Tensor;
using Factors = std::optional<at::ArrayRef<double>>;

Tensor Softmin(const Tensor& input, int64_t dim, std::optional<at::ScalarType> dtype) {
  return at::softmax(input.neg(), dim, dtype);
}

Tensor Softsign(const Tensor& input) { return input.div(input.abs().add(1)); }

Tensor Tanhshrink(const Tensor& input) { return input.sub(at::tanh(input)); }

Tensor Normalize(const Tensor& input, double p, at::IntArrayRef dim, double eps) {
  return input.div(at::linalg_vector_norm(input, p, dim, /*keepdim=*/true).clamp_min(eps));
}

Tensor Fold(const Tensor& input, at::IntArrayRef output_size, at::IntArrayRef kernel_size,
            at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  return at::col2im(input, output_size, kernel_size, dilation, padding, stride);
}

/// The word's place in the list, which is the operator's number for it.
int64_t NumberOf(c10::string_view word, const char* argument,
                 const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return static_cast<int64_t>(i);
  }
  TORCH_CHECK(false, argument, " must be one of ", Join(words, ", "), ", got \"", word, "\"",
              DidYouMean(std::string(word), words));
}

Tensor GridSample(const Tensor& input, const Tensor& grid, c10::string_view mode,
                  c10::string_view padding_mode, std::optional<bool> align_corners) {
  return at::grid_sampler(input, grid, NumberOf(mode, "mode", {"bilinear", "nearest", "bicubic"}),
                          NumberOf(padding_mode, "padding_mode", {"zeros", "border", "reflection"}),
                          align_corners.value_or(false));
}

Tensor AffineGrid(const Tensor& theta, at::IntArrayRef size, std::optional<bool> align_corners) {
  return at::affine_grid_generator(theta, size, align_corners.value_or(false));
}

/// One number stands for all spatial dims.
template <class Number>
std::optional<std::vector<Number>> PerDim(std::optional<at::ArrayRef<Number>> given, int64_t dims,
                                          const char* argument) {
  if (!given) return std::nullopt;
  std::vector<Number> numbers = given->vec();
  if (numbers.size() == 1) numbers.resize(static_cast<size_t>(dims), numbers[0]);
  TORCH_CHECK(static_cast<int64_t>(numbers.size()) == dims, argument, " must be one number or ",
              Plural(dims, "number"), ", one for each spatial dim; got ", numbers.size());
  return numbers;
}

Tensor Nearest(const Tensor& input, at::OptionalIntArrayRef size, Factors factors) {
  if (input.dim() == 3) return at::upsample_nearest1d(input, size, factors);
  if (input.dim() == 4) return at::upsample_nearest2d(input, size, factors);
  return at::upsample_nearest3d(input, size, factors);
}

Tensor NearestExact(const Tensor& input, at::OptionalIntArrayRef size, Factors factors) {
  if (input.dim() == 3) return at::_upsample_nearest_exact1d(input, size, factors);
  if (input.dim() == 4) return at::_upsample_nearest_exact2d(input, size, factors);
  return at::_upsample_nearest_exact3d(input, size, factors);
}

/// Adaptive pooling to the size, given or that of the factors.
Tensor Area(const Tensor& input, at::OptionalIntArrayRef size, Factors factors) {
  std::vector<int64_t> target = size ? size->vec() : std::vector<int64_t>();
  for (size_t i = 0; !size && i < factors->size(); ++i) {
    const auto length = static_cast<double>(input.size(static_cast<int64_t>(i) + 2));
    target.push_back(static_cast<int64_t>(length * (*factors)[i]));
  }
  if (input.dim() == 3) return at::adaptive_avg_pool1d(input, target);
  if (input.dim() == 4) return at::adaptive_avg_pool2d(input, target);
  return at::adaptive_avg_pool3d(input, target);
}

Tensor Interpolate(const Tensor& input, at::OptionalIntArrayRef size, Factors scale_factor,
                   c10::string_view mode, std::optional<bool> align_corners) {
  constexpr int64_t kFirstAligned = 3;
  const std::vector<std::string> modes = {"nearest",  "nearest-exact", "area",   "linear",
                                          "bilinear", "trilinear",     "bicubic"};
  const int64_t number = NumberOf(mode, "mode", modes);
  const int64_t dims = input.dim() - 2;
  TORCH_CHECK(dims >= 1 && dims <= 3, "input must have 3, 4 or 5 dims (N, C, ...), got ",
              input.dim());
  TORCH_CHECK(size.has_value() != scale_factor.has_value(),
              "needs either size or scale_factor, and not both");
  TORCH_CHECK(!align_corners || number >= kFirstAligned, "align_corners has no meaning for mode \"",
              mode, "\"");
  const auto sizes = PerDim<int64_t>(size ? std::make_optional(*size) : std::nullopt, dims, "size");
  const auto factors = PerDim<double>(scale_factor, dims, "scale_factor");
  const auto to = sizes ? at::OptionalIntArrayRef(*sizes) : at::OptionalIntArrayRef();
  const auto by = factors ? Factors(*factors) : Factors();
  const bool align = align_corners.value_or(false);
  if (mode == "nearest") return Nearest(input, to, by);
  if (mode == "nearest-exact") return NearestExact(input, to, by);
  if (mode == "area") return Area(input, to, by);
  if (mode == "linear" && dims == 1) return at::upsample_linear1d(input, to, align, by);
  if (mode == "bilinear" && dims == 2) return at::upsample_bilinear2d(input, to, align, by);
  if (mode == "trilinear" && dims == 3) return at::upsample_trilinear3d(input, to, align, by);
  if (mode == "bicubic" && dims == 2) return at::upsample_bicubic2d(input, to, align, by);
  TORCH_CHECK(false, "mode \"", mode, "\" does not take an input of ", input.dim(), " dims");
}

}  // namespace

torch::Library ComposedOperators() {
  torch::Library library(torch::Library::DEF, kComposedNamespace, std::nullopt, __FILE__, __LINE__);
  library.def("softmin(Tensor input, int dim, ScalarType? dtype=None) -> Tensor", Softmin);
  library.def("softsign(Tensor input) -> Tensor", Softsign);
  library.def("tanhshrink(Tensor input) -> Tensor", Tanhshrink);
  library.def("normalize(Tensor input, float p=2., int[1] dim=1, float eps=1e-12) -> Tensor",
              Normalize);
  library.def(
      "fold(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, "
      "int[2] padding=0, int[2] stride=1) -> Tensor",
      Fold);
  library.def(
      "interpolate(Tensor input, int[1]? size=None, float[1]? scale_factor=None, "
      "str mode=\"nearest\", bool? align_corners=None) -> Tensor",
      Interpolate);
  library.def(
      "grid_sample(Tensor input, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", "
      "bool? align_corners=None) -> Tensor",
      GridSample);
  library.def("affine_grid(Tensor theta, int[] size, bool? align_corners=None) -> Tensor",
              AffineGrid);
  return library;
}

}  // namespace strata::lua
