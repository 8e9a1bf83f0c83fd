// Implements the collectives of layers with those of the transport's group.
#include "engine/runtime/update/model_axis.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "engine/comm/group.h"

namespace strata {
namespace {

/// Groups handle the first dim only, so the given dim is moved to the front and back.
class GroupAxis : public AxisComm {
 public:
  GroupAxis(Group& group, Progress& progress) : group_(group), progress_(progress) {}
  int rank() const override { return group_.place(); }
  int size() const override { return group_.size(); }

  at::Tensor AllReduceSum(const at::Tensor& x) override {
    const at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
    Meet([&] { group_.AllReduce(sum); });
    return sum;
  }

  at::Tensor AllGather(const at::Tensor& x, int64_t dim) override {
    const at::Tensor input = First(x, dim);
    const at::Tensor output = Rows(input, input.size(0) * size());
    Meet([&] { group_.AllGather(input, output); });
    return output.movedim(0, dim).contiguous();
  }

  at::Tensor ReduceScatterSum(const at::Tensor& x, int64_t dim) override {
    const at::Tensor input = First(x, dim);
    const at::Tensor output = Rows(input, input.size(0) / size());
    Meet([&] { group_.ReduceScatter(input, output); });
    return output.movedim(0, dim).contiguous();
  }

 private:
  static at::Tensor First(const at::Tensor& x, int64_t dim) {
    return x.detach().movedim(dim, 0).contiguous();
  }

  /// A new tensor like `like`, but with `rows` rows.
  static at::Tensor Rows(const at::Tensor& like, int64_t rows) {
    std::vector<int64_t> sizes = like.sizes().vec();
    sizes[0] = rows;
    return at::empty(sizes, like.options());
  }

  template <class Collective>
  void Meet(const Collective& collective) {
    progress_.WaitFor(&doing_, &group_.awaited());
    collective();
    progress_.Compute();
  }

  Group& group_;
  Progress& progress_;
  const Doing doing_ = {-1, "MODEL_AXIS"};  // for reports
};

}  // namespace

std::shared_ptr<AxisComm> OpenModelAxis(Transport& transport, Progress& progress) {
  Group* group = transport.FindGroup("model");
  return group ? std::make_shared<GroupAxis>(*group, progress) : nullptr;
}

void SumPartialGradients(const FlatParameters& parameters, AxisComm& axis) {
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> flat;
  for (const PlacedParameter& parameter : parameters.parameters()) {
    if (!parameter.partial_grad || !parameter.gradient.defined()) continue;
    NeedZeros(parameter.gradient);
    gradients.push_back(parameter.gradient);
    flat.push_back(parameter.gradient.reshape({-1}));
  }
  if (gradients.empty()) return;
  const at::Tensor sums = axis.AllReduceSum(at::cat(flat));
  int64_t begin = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(sums.narrow(0, begin, gradient.numel()).view_as(gradient));
    begin += gradient.numel();
  }
}

}  // namespace strata
