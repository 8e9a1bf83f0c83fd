#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/axis/crossing.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

int64_t Wrapped(int64_t dim, const at::Tensor& x) { return dim < 0 ? dim + x.dim() : dim; }

at::Tensor OwnPart(const at::Tensor& whole, int64_t dim, const AxisComm& axis) {
  const int64_t size = whole.size(dim) / axis.size();
  return whole.narrow(dim, axis.rank() * size, size);
}

void ExpectDivisible(const at::Tensor& x, int64_t dim, const AxisComm& axis) {
  if (x.size(dim) % axis.size() == 0) return;
  throw ConfigError(Str("dim ", dim, " of ", FormatShape(x.sizes()), " is not divisible by the ",
                        axis.size(), " ranks of the model axis"));
}

/// The crossing's forward computation, without autograd. The result is no view of x.
at::Tensor Forward(const at::Tensor& x, Crossing how, AxisComm& axis, int64_t dim) {
  switch (how) {
    case Crossing::kNone:
    case Crossing::kCopy:
      return x.variable_data();
    case Crossing::kReduce:
      return axis.AllReduceSum(x);
    case Crossing::kGather:
    case Crossing::kGatherSummed:
      return axis.AllGather(x, dim);
    case Crossing::kScatter:
      ExpectDivisible(x, dim, axis);
      return OwnPart(x, dim, axis).clone();
    case Crossing::kReduceScatter:
      ExpectDivisible(x, dim, axis);
      return axis.ReduceScatterSum(x, dim);
  }
  STRATA_CHECK(false) << static_cast<int>(how);
  return {};
}

/// The crossing whose forward is the backward of `how`.
Crossing Back(Crossing how) {
  switch (how) {
    case Crossing::kNone:
      return Crossing::kNone;
    case Crossing::kCopy:
      return Crossing::kReduce;
    case Crossing::kReduce:
      return Crossing::kCopy;
    case Crossing::kGather:
      return Crossing::kScatter;
    case Crossing::kScatter:
      return Crossing::kGather;
    case Crossing::kGatherSummed:
      return Crossing::kReduceScatter;
    case Crossing::kReduceScatter:
      return Crossing::kGatherSummed;
  }
  STRATA_CHECK(false) << static_cast<int>(how);
  return Crossing::kNone;
}

class CrossingNode : public torch::autograd::Node {
 public:
  CrossingNode(Crossing back, std::shared_ptr<AxisComm> axis, int64_t dim)
      : back_(back), axis_(std::move(axis)), dim_(dim) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined() || back_ == Crossing::kCopy) return std::move(grads);
    return {Forward(grads[0], back_, *axis_, dim_)};
  }

 private:
  const Crossing back_;
  const std::shared_ptr<AxisComm> axis_;
  const int64_t dim_;
};

}  // namespace

at::Tensor Cross(const at::Tensor& x, Crossing how, const std::shared_ptr<AxisComm>& axis,
                 int64_t dim) {
  if (!axis || how == Crossing::kNone) return x;
  const int64_t wrapped = Wrapped(dim, x);
  const bool recorded = at::GradMode::is_enabled() && x.requires_grad();
  if (!recorded && how == Crossing::kCopy) return x;
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = Forward(x, how, *axis, wrapped).variable_data();  // no view, so it may be overwritten
  }
  if (!recorded) return y;
  const std::shared_ptr<torch::autograd::Node> node(new CrossingNode(Back(how), axis, wrapped),
                                                    torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(y, node);
  return y;
}

Ends PartEnds(const LayerSpec& spec, std::shared_ptr<AxisComm> axis, int64_t dim) {
  return {std::move(axis), spec.input_shard ? Crossing::kNone : Crossing::kScatter,
          spec.output_shard ? Crossing::kNone : Crossing::kGather, dim};
}

std::vector<int64_t> Part::WholeSizes(at::IntArrayRef part_sizes) const {
  std::vector<int64_t> sizes = part_sizes.vec();
  const int64_t wrapped = dim < 0 ? dim + static_cast<int64_t>(sizes.size()) : dim;
  if (axis) sizes[wrapped] *= axis->size();
  return sizes;
}

at::Tensor Part::Of(const at::Tensor& whole) const {
  return axis ? OwnPart(whole, Wrapped(dim, whole), *axis) : whole;
}

at::Tensor CopyShare(const at::Tensor& whole, const Share& share, int rank, int ranks) {
  const int64_t size = whole.size(share.dim) / share.blocks / ranks;
  return whole.unflatten(share.dim, {share.blocks, ranks, size})
      .select(share.dim + 1, rank)
      .flatten(share.dim, share.dim + 1)
      .clone(at::MemoryFormat::Contiguous);
}

at::Tensor JoinShares(const at::Tensor& own, const Share& share, AxisComm& axis) {
  const int64_t size = own.size(share.dim) / share.blocks;
  return axis.AllGather(own, share.dim)
      .unflatten(share.dim, {axis.size(), share.blocks, size})
      .transpose(share.dim, share.dim + 1)
      .flatten(share.dim, share.dim + 2)
      .contiguous();
}

}  // namespace strata
