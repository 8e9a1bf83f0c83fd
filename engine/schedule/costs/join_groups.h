// Joining: where in a program the weight gradients of several micro-batches become one product
// (job.join; engine/plan/joining.h says of which layers).
//
// The W and B of a stage, in the order of its row, fall into groups. Layers that are not joined
// compute their weight gradients as ever; a joined layer keeps its input and output gradient, and
// the last W or B of the group multiplies those of the whole group at once and frees them. So no
// action waits for anything new, and REDUCE_GRAD, after the stage's last W or B, finds all there.
#pragma once

#include <vector>

#include "engine/schedule/program/program.h"

namespace strata::schedule {

/// By stage and micro-batch, whether its W or B is the last of a group; empty for a stage that is
/// not joined. `joined`: the most micro-batches of a group, of every stage; 1 = not joined. Groups
/// are as few as can be, and as even. Actions of stages or micro-batches that do not exist are
/// ignored here and below.
std::vector<std::vector<bool>> GroupEnds(const Program& program, const std::vector<int>& joined);

/// Turns each B that ends a group into I and W, and an overlap's B likewise: what the stage before
/// waits for does not wait for the products. First stages have nobody before, and keep their B.
/// An evaluation program is not changed.
Program SplitGroupEnds(Program program, const std::vector<int>& joined);

}  // namespace strata::schedule
