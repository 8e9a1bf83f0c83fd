// The model axis of a rank: what its shared layers talk over, and what the engine does for them
// between the backward passes and the optimizer.
#pragma once

#include <memory>

#include "engine/comm/transport.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// The transport's group "model" for layers; null when the rank has none. While a layer waits for
/// the others, `progress` says so. Both must outlive it.
std::shared_ptr<AxisComm> OpenModelAxis(Transport& transport, Progress& progress);

/// Sums the gradients of which every rank of the axis has a part (Parameter::partial_grad), one
/// collective for all of them.
void SumPartialGradients(const FlatParameters& parameters, AxisComm& axis);

}  // namespace strata
