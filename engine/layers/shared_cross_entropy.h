// Cross entropy of logits of which every rank of the model axis has some of the classes (Megatron's
// parallel cross entropy): the whole logits are never in one place.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "engine/layers/axis_comm.h"

namespace strata {

/// The sum over the rows whose label is not `ignore_index`; the same on every rank. Collective.
/// `logits`: (rows, this rank's classes); `labels`: (rows), whole, int64.
at::Tensor SharedCrossEntropy(const at::Tensor& logits, const at::Tensor& labels,
                              int64_t ignore_index, const std::shared_ptr<AxisComm>& axis);

}  // namespace strata
