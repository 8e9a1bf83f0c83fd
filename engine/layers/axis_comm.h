// AxisComm: how layers reach the other ranks of the model axis, without knowing transports.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// One rank's end. Every call is a collective: all ranks of the axis make the same calls in the
/// same order, because they run the same layers on the same micro-batches. Calls come from the
/// rank's thread, or from autograd's while the rank waits for it. Results are fresh tensors without
/// graph. Errors: WorldError, from whoever carries the data.
class AxisComm {
 public:
  virtual ~AxisComm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The same bits on every rank.
  virtual at::Tensor AllReduceSum(const at::Tensor& x) = 0;
  /// The ranks' tensors (of one shape) behind each other along `dim`, in the order of ranks.
  virtual at::Tensor AllGather(const at::Tensor& x, int64_t dim) = 0;
  /// Of the sum, this rank's of `size()` equal parts along `dim`, which divides.
  virtual at::Tensor ReduceScatterSum(const at::Tensor& x, int64_t dim) = 0;
};

}  // namespace strata
