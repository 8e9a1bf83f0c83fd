// The layers that pad, resample, or rearrange the last dims of images.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/layers/families.h"

namespace strata {
namespace {

using T = at::Tensor;
using Args = Value;
using Ints = std::vector<int64_t>;

T Reflect(const T& x, const Args& a) { return at::pad(x, a["padding"].as_ints(), "reflect"); }
T Replicate(const T& x, const Args& a) { return at::pad(x, a["padding"].as_ints(), "replicate"); }
T Circle(const T& x, const Args& a) { return at::pad(x, a["padding"].as_ints(), "circular"); }
T Zeros(const T& x, const Args& a) { return at::pad(x, a["padding"].as_ints(), "constant", 0.0); }
T Constant(const T& x, const Args& a) {
  return at::pad(x, a["padding"].as_ints(), "constant", a["value"].as_double());
}

/// The arguments of at::upsample_*: the sizes of the output, or the scale factors that determine
/// them.
struct Target {
  Ints sizes;
  std::optional<std::vector<double>> factors;  ///< the scale is computed from them, not from sizes

  at::OptionalIntArrayRef Sizes() const {
    return factors ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(sizes);
  }
  std::optional<at::ArrayRef<double>> Factors() const {
    return factors ? std::make_optional(at::ArrayRef<double>(*factors)) : std::nullopt;
  }
};

Target TargetOf(const T& x, const Args& a) {
  Target target;
  const bool by_size = !a["size"].is_null();
  const Value::List& given = a[by_size ? "size" : "scale_factor"].as_list();
  const bool exact = !by_size && a["recompute_scale_factor"] != Value(true);
  if (exact) target.factors.emplace();
  for (int64_t d = 2; d < x.dim(); ++d) {
    const Value& of = given.size() == 1 ? given[0] : given[d - 2];
    if (exact) target.factors->push_back(of.as_double());
    target.sizes.push_back(by_size ? of.as_int()
                                   : static_cast<int64_t>(std::floor(
                                         static_cast<double>(x.size(d)) * of.as_double())));
  }
  return target;
}

T Upsample(const T& x, const Args& a) {
  const Target to = TargetOf(x, a);
  const std::string& mode = a["mode"].as_string();
  const bool aligned = a["align_corners"] == Value(true);
  const int64_t dims = x.dim() - 2;
  if (mode == "linear") return at::upsample_linear1d(x, to.Sizes(), aligned, to.Factors());
  if (mode == "bilinear") return at::upsample_bilinear2d(x, to.Sizes(), aligned, to.Factors());
  if (mode == "bicubic") return at::upsample_bicubic2d(x, to.Sizes(), aligned, to.Factors());
  if (mode == "trilinear") return at::upsample_trilinear3d(x, to.Sizes(), aligned, to.Factors());
  if (mode == "area") {
    return dims == 1   ? at::adaptive_avg_pool1d(x, to.sizes)
           : dims == 2 ? at::adaptive_avg_pool2d(x, to.sizes)
                       : at::adaptive_avg_pool3d(x, to.sizes);
  }
  if (mode == "nearest") {
    return dims == 1   ? at::upsample_nearest1d(x, to.Sizes(), to.Factors())
           : dims == 2 ? at::upsample_nearest2d(x, to.Sizes(), to.Factors())
                       : at::upsample_nearest3d(x, to.Sizes(), to.Factors());
  }
  return dims == 1   ? at::_upsample_nearest_exact1d(x, to.Sizes(), to.Factors())
         : dims == 2 ? at::_upsample_nearest_exact2d(x, to.Sizes(), to.Factors())
                     : at::_upsample_nearest_exact3d(x, to.Sizes(), to.Factors());
}

T Unfold(const T& x, const Args& a) {
  return at::im2col(x, a["kernel_size"].as_ints(), a["dilation"].as_ints(), a["padding"].as_ints(),
                    a["stride"].as_ints());
}

/// The image that windows add up to. at::col2im allocates its result with the size of the windows,
/// which would live as long as the image; so the image is copied to memory of its own size.
T Fold(const T& x, const Args& a) {
  const T image =
      at::col2im(x, a["output_size"].as_ints(), a["kernel_size"].as_ints(), a["dilation"].as_ints(),
                 a["padding"].as_ints(), a["stride"].as_ints());
  return image.storage().nbytes() > image.nbytes() ? image.clone() : image;
}

constexpr LayerEntry kLayers[] = {
    {"ZeroPad1d", Zeros},
    {"ZeroPad2d", Zeros},
    {"ZeroPad3d", Zeros},
    {"ConstantPad1d", Constant},
    {"ConstantPad2d", Constant},
    {"ConstantPad3d", Constant},
    {"ReflectionPad1d", Reflect},
    {"ReflectionPad2d", Reflect},
    {"ReflectionPad3d", Reflect},
    {"ReplicationPad1d", Replicate},
    {"ReplicationPad2d", Replicate},
    {"ReplicationPad3d", Replicate},
    {"CircularPad1d", Circle},
    {"CircularPad2d", Circle},
    {"CircularPad3d", Circle},
    {"Upsample", Upsample},
    {"PixelShuffle",
     [](const T& x, const Args& a) { return at::pixel_shuffle(x, a["upscale_factor"].as_int()); }},
    {"PixelUnshuffle",
     [](const T& x, const Args& a) {
       return at::pixel_unshuffle(x, a["downscale_factor"].as_int());
     }},
    {"Unfold", Unfold},
    {"Fold", Fold},
};

}  // namespace

LayerTable SpatialLayers() { return kLayers; }

}  // namespace strata
