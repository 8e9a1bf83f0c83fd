// AxisComm: the interface by which layers exchange tensors with the other ranks of the model axis.
// It keeps layers independent of transports.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// One rank's end. Every call is a collective. All ranks of the axis make the same calls in the
/// same order, since they run the same layers on the same micro-batches. Calls come from the rank's
/// thread, or from an autograd thread while the rank waits for it. Results are new tensors without
/// a graph. Errors: WorldError of the transport.
class AxisComm {
 public:
  virtual ~AxisComm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The sum of all ranks' tensors (of one shape), with the same bits on every rank.
  virtual at::Tensor AllReduceSum(const at::Tensor& x) = 0;
  /// All ranks' tensors (of one shape), concatenated along `dim` in the order of ranks.
  virtual at::Tensor AllGather(const at::Tensor& x, int64_t dim) = 0;
  /// This rank's part of the sum of all ranks' tensors. The sum is cut along `dim` into size()
  /// equal parts. REQUIRES: size() divides the size of `dim`.
  virtual at::Tensor ReduceScatterSum(const at::Tensor& x, int64_t dim) = 0;
};

}  // namespace strata
