// The model axis of a rank: the communicator for layers that are divided over it, and the sum of
// their partial gradients between the backward passes and the optimizer.
#pragma once

#include <memory>

#include "engine/comm/transport.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Makes a communicator from the transport's group "model"; null if the rank has none. While a
/// layer waits for other ranks, `progress` shows it. Both arguments must outlive the communicator.
std::shared_ptr<AxisComm> OpenModelAxis(Transport& transport, Progress& progress);

/// Sums the gradients of which every rank of the axis has only a part (Parameter::partial_grad), in
/// one collective.
void SumPartialGradients(const FlatParameters& parameters, AxisComm& axis);

}  // namespace strata
