// Replay: repeats the recorded work of another rank (step_record.h) on a stage that is built for
// it, and returns the digests of what that gives. It needs memory for the stage's parameters and
// gradients, for the time of the repetition. Layers are built as at the start of a training, with
// initial values that are then overwritten.
//
// It is not a run of the program: there are no messages and no sums over ranks. A function of the
// script that calls strata.comm cannot be repeated; that is a ConfigError.
#pragma once

#include "engine/runtime/check/flip.h"
#include "engine/runtime/check/tensor_packet.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/update/optimizer.h"

namespace strata {

/// Repeats the actions of one micro-batch. `packet`: of StepRecord::ToPacket().
Digests ReplayActions(const TensorPacket& packet, const RankContext& context, Flip* flip);

/// Repeats the update of a stage. `packet`: of UpdatePacket().
Digests ReplayUpdate(const TensorPacket& packet, const RankContext& context, Flip* flip);

/// What an update of the stage takes; made before it. Arguments as for Optimizer::Step().
TensorPacket UpdatePacket(Stage& stage, const Optimizer& optimizer, double lr_factor,
                          double divisor);
/// Digests of the parameters that the optimizer writes and of its state.
Digests UpdatedBits(const Optimizer& optimizer);

}  // namespace strata
