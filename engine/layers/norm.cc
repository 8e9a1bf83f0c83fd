// LayerNorm, RMSNorm, GroupNorm, and BatchNorm and InstanceNorm over 1 to 3 dims.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/norm_kernels.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/residual.h"
#include "engine/layers/split.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

/// A layer with an optional weight that starts at 1 and an optional bias that starts at 0.
class AffineLayer : public UnaryLayer {
 public:
  AffineLayer(const Shape& shape, bool weight, bool bias) {
    if (weight) AddParameter("weight", Ones(shape));
    if (weight && bias) AddParameter("bias", Zeros(shape));
    for (Parameter& parameter : parameters_) parameter.keeps_type = true;
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  std::optional<at::Tensor> weight() const { return ValueAt(0); }
  std::optional<at::Tensor> bias() const { return ValueAt(1); }
  /// The weight or bias for x in half precision. ATen's CPU kernels take float32 parameters with
  /// it; on CUDA they are converted to x's type.
  std::optional<at::Tensor> WeightFor(const at::Tensor& x) const { return For(x, weight()); }
  std::optional<at::Tensor> BiasFor(const at::Tensor& x) const { return For(x, bias()); }

 private:
  static std::optional<at::Tensor> For(const at::Tensor& x, std::optional<at::Tensor> value) {
    if (!value || !x.is_cuda()) return value;
    return value->to(x.scalar_type());
  }
  std::optional<at::Tensor> ValueAt(size_t index) const {
    const Parameter* parameter = OptionalParameter(index);
    return parameter ? std::make_optional(parameter->value) : std::nullopt;
  }
};

/// A norm over the last dims, which our kernels compute if they take the tensors.
class TrailingNorm : public AffineLayer, public NormAfterSum {
 public:
  std::optional<at::Tensor> SumAndKeep(const SumCall& sum, const Pass& pass) override {
    const std::optional<NormCall> call = CallFor(sum.x);
    if (!call) return std::nullopt;
    if (const auto both = SumAndNormByKernel(sum, *call, pass)) {
      kept_ = {both->sum, both->norm};
      return kept_.sum;
    }
    return std::nullopt;
  }

 protected:
  TrailingNorm(Shape shape, bool weight, bool bias)
      : AffineLayer(shape, weight, bias), shape_(std::move(shape)) {}
  /// The kernels' call for x; none if x has another shape or the norm is no plain one.
  virtual std::optional<NormCall> CallFor(const at::Tensor& x) const = 0;
  std::optional<NormCall> Call(const at::Tensor& x, bool centred, double eps) const {
    const auto rank = static_cast<int64_t>(shape_.size());
    if (x.dim() < rank || x.sizes().slice(x.dim() - rank) != at::IntArrayRef(shape_)) return {};
    return NormCall{.centred = centred,
                    .width = c10::multiply_integers(shape_),
                    .weight = OptionalParameter(0),
                    .bias = OptionalParameter(1),
                    .eps = eps};
  }
  /// The norm by our kernels, or the one that SumAndKeep() has kept of x.
  std::optional<at::Tensor> ByKernel(const at::Tensor& x, const Pass& pass) {
    const SumAndNorm kept = std::exchange(kept_, {});
    if (kept.sum.defined() && x.is_same(kept.sum)) return kept.norm;
    const std::optional<NormCall> call = CallFor(x);
    return call ? NormByKernel(x, *call, pass) : std::nullopt;
  }

  const Shape shape_;

 private:
  SumAndNorm kept_;
};

class LayerNorm : public TrailingNorm {
 public:
  LayerNorm(Shape shape, double eps, bool affine, bool bias, Ends ends)
      : TrailingNorm(std::move(shape), affine, bias), eps_(eps), ends_(std::move(ends)) {}

 protected:
  std::optional<NormCall> CallFor(const at::Tensor& x) const override {
    return Call(x, /*centred=*/true, eps_);
  }
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    const at::Tensor entered = ends_.Enter(x);
    if (const auto y = ByKernel(entered, pass)) return ends_.Leave(*y);
    return ends_.Leave(at::layer_norm(entered, shape_, WeightFor(entered), BiasFor(entered), eps_));
  }

 private:
  const double eps_;
  const Ends ends_;
};

class RMSNorm : public TrailingNorm {
 public:
  explicit RMSNorm(const Value& args)
      : TrailingNorm(args["normalized_shape"].as_ints(), args["elementwise_affine"].as_bool(),
                     /*bias=*/false) {
    if (!args["eps"].is_null()) eps_ = args["eps"].as_double();
  }

 protected:
  std::optional<NormCall> CallFor(const at::Tensor& x) const override {
    // Without weight and eps, eps is that of half precision.
    if (!weight() && !eps_ && x.scalar_type() != at::kFloat) return std::nullopt;
    return Call(x, /*centred=*/false, eps_.value_or(std::numeric_limits<float>::epsilon()));
  }
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    if (const auto y = ByKernel(x, pass)) return *y;
    const std::optional<at::Tensor> scale = weight();
    if (!scale) return at::rms_norm(x, shape_, scale, eps_);
    return at::rms_norm(x.to(scale->scalar_type()), shape_, scale, eps_).to(x.scalar_type());
  }

 private:
  std::optional<double> eps_;  // none = the dtype's epsilon
};

class GroupNorm : public AffineLayer {
 public:
  explicit GroupNorm(const Value& args)
      : AffineLayer({args["num_channels"].as_int()}, args["affine"].as_bool(), /*bias=*/true),
        groups_(args["num_groups"].as_int()),
        eps_(args["eps"].as_double()) {}

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override {
    return at::group_norm(x, groups_, WeightFor(x), BiasFor(x), eps_);
  }

 private:
  const int64_t groups_;
  const double eps_;
};

/// BatchNorm and InstanceNorm. In training their running statistics are updated once for every
/// micro-batch, in the order of the forward passes. A recomputation does not update them.
class ChannelNorm : public AffineLayer {
 public:
  ChannelNorm(const LayerSpec& spec, const BuildContext&)
      : AffineLayer({spec.Int("num_features")}, spec.Bool("affine"), /*bias=*/true),
        type_(spec.type),
        over_instances_(type_.starts_with("Instance")),
        eps_(spec.Number("eps")),
        momentum_(spec.args["momentum"]) {
    if (!spec.Bool("track_running_stats")) return;
    const Shape shape = {spec.Int("num_features")};
    buffers_ = {{"running_mean", Zeros(shape)},
                {"running_var", Ones(shape)},
                {"num_batches_tracked", at::scalar_tensor(0, at::kLong)}};
  }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    const bool tracks = !buffers_.empty();
    const bool uses_batch = pass.training || !tracks;
    const bool counts = tracks && pass.training && !pass.recomputing;
    at::Tensor mean, variance;
    if (counts || !uses_batch) {
      mean = buffers_[0].value;
      variance = buffers_[1].value;
    } else if (at::isReducedFloatingType(x.scalar_type())) {
      // Pass temporary statistics in the type that those of a counting pass have. Without any, ATen
      // keeps the batch's statistics in half precision, which gives other bits.
      const at::ScalarType type = weight() ? weight()->scalar_type()
                                  : tracks ? buffers_[0].value.scalar_type()
                                           : at::kFloat;
      mean = at::zeros({x.size(1)}, x.options().dtype(type));
      variance = at::ones_like(mean);
    }
    if (over_instances_) {
      // at::instance_norm writes the statistics back with other bits even if it only has to read
      // them, so it gets copies.
      if (mean.defined() && !counts) {
        mean = mean.clone();
        variance = variance.clone();
      }
      return at::instance_norm(x, weight(), bias(), mean, variance, uses_batch,
                               momentum_.is_null() ? 0 : momentum_.as_double(), eps_,
                               /*cudnn_enabled=*/true);
    }
    if (uses_batch) CheckSize(x);
    if (counts) buffers_[2].value.add_(1);
    const double momentum = counts ? Momentum() : 0;
    return at::batch_norm(x, weight(), bias(), mean, variance, /*training=*/uses_batch, momentum,
                          eps_,
                          /*cudnn_enabled=*/true);
  }

 private:
  /// The weight of the new batch in the running statistics. Without a momentum it is 1 / n for the
  /// n-th batch, which gives the plain average over all batches.
  double Momentum() const {
    if (!momentum_.is_null()) return momentum_.as_double();
    return 1.0 / static_cast<double>(buffers_[2].value.item<int64_t>());
  }

  void CheckSize(const at::Tensor& x) const {
    if (x.numel() == x.size(1)) {
      throw ConfigError(Str(type_, " needs more than one value per channel in training, got ",
                            FormatShape(x.sizes()),
                            "; larger micro-batches help, and data:take(n) ",
                            "leaves out a last one of fewer samples"));
    }
  }

  const std::string type_;
  const bool over_instances_;
  const double eps_;
  const Value momentum_;
};

/// The ends of a LayerNorm that is split along the sequence. If a neighbour works on parts, its
/// shard says which dim is the sequence; otherwise it is SequenceDim().
Ends NormEnds(const LayerSpec& spec, const std::shared_ptr<AxisComm>& axis) {
  if (!axis || SplitOf(spec).empty()) return {};
  const ShardDim known = spec.input_shard ? spec.input_shard : spec.output_shard;
  return PartEnds(spec, axis, known.value_or(SequenceDim(spec)));
}

constexpr LayerEntry kLayers[] = {
    {"RMSNorm", New<RMSNorm>},
    {"GroupNorm", New<GroupNorm>},
    {"BatchNorm1d", New<ChannelNorm>},
    {"BatchNorm2d", New<ChannelNorm>},
    {"BatchNorm3d", New<ChannelNorm>},
    {"InstanceNorm1d", New<ChannelNorm>},
    {"InstanceNorm2d", New<ChannelNorm>},
    {"InstanceNorm3d", New<ChannelNorm>},
    {"LayerNorm", [](const LayerSpec& spec, const BuildContext& context) {
       return NewLayerNorm(spec.Ints("normalized_shape"), spec.Number("eps"),
                           spec.Bool("elementwise_affine"), spec.Bool("bias"),
                           NormEnds(spec, context.axis));
     }}};

}  // namespace

std::unique_ptr<Layer> NewLayerNorm(std::vector<int64_t> normalized_shape, double eps, bool affine,
                                    bool bias, Ends ends) {
  return std::make_unique<LayerNorm>(std::move(normalized_shape), eps, affine, bias,
                                     std::move(ends));
}

LayerTable NormalizationLayers() { return kLayers; }

}  // namespace strata
