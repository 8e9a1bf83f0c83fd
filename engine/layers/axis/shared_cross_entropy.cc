#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/axis/shared_cross_entropy.h"

#include "engine/layers/axis/crossing.h"
#include "engine/layers/axis/index_share.h"

namespace strata {
namespace {

/// The largest logit of every row over all ranks, (rows, 1).
at::Tensor Largest(const at::Tensor& logits, AxisComm& axis) {
  return axis.AllGather(logits.detach().amax(1, /*keepdim=*/true), 1).amax(1, /*keepdim=*/true);
}

}  // namespace

// The loss of a row of logits z is -log(exp(z[label]) / sum(exp(z))) = log(sum(exp(z - max))) -
// (z[label] - max). Three collectives, each of one number per row and rank, give its terms: an
// all-gather the largest logit, an all-reduce the sum of the exponentials, and an all-reduce the
// label's logit, which only one rank has (the others add 0). Autograd records all but the maximum,
// whose gradient is 0.
at::Tensor SharedCrossEntropy(const at::Tensor& logits, const at::Tensor& labels,
                              int64_t ignore_index, const std::shared_ptr<AxisComm>& axis) {
  const IndexShare classes = ShareOfIndices(*axis, logits.size(1) * axis->size());
  const at::Tensor ignored = labels.eq(ignore_index);
  const at::Tensor counted = labels.masked_fill(ignored, 0);
  const at::Tensor elsewhere = classes.Elsewhere(counted);
  const at::Tensor shifted = logits.sub(Largest(logits, *axis));
  const at::Tensor total = Cross(shifted.exp().sum(1), Crossing::kReduce, axis, 0);
  const at::Tensor own = shifted.gather(1, classes.Own(counted, elsewhere).unsqueeze(1)).squeeze(1);
  const at::Tensor picked = Cross(own.masked_fill(elsewhere, 0), Crossing::kReduce, axis, 0);
  return total.log().sub(picked).masked_fill(ignored, 0).sum();
}

}  // namespace strata
