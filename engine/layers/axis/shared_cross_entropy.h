// Cross entropy when each rank of the model axis has the logits of some of the classes (Megatron's
// parallel cross entropy). No rank ever holds the whole logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "engine/layers/axis/axis_comm.h"

namespace strata {

/// Collective: the sum of the losses of all rows whose label is not `ignore_index`, on every rank.
/// `logits`: (rows, this rank's classes). `labels`: (rows), int64, counted over all classes.
at::Tensor SharedCrossEntropy(const at::Tensor& logits, const at::Tensor& labels,
                              int64_t ignore_index, const std::shared_ptr<AxisComm>& axis);

}  // namespace strata
