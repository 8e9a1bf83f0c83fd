#include "engine/schedule/row_walk.h"

namespace strata::schedule {

int64_t Step::Change(const Held& held) const {
  const int64_t until_backward = held.kept + (is_recomputed ? held.recomputed : 0);
  switch (part.kind) {
    case Kind::kForward:
      return held.kept;
    case Kind::kRecompute:
      return held.recomputed;
    case Kind::kInputGrad:
      return held.deferred - until_backward;
    case Kind::kWeightGrad:
      return -held.deferred;
    case Kind::kBackward:
      return -until_backward;
    default:
      return 0;
  }
}

RowWalk::RowWalk(const Program& program) : program_(program) {
  for (const auto& row : program.rows) {
    for (const Action& action : row) {
      if (action.kind != Kind::kRecompute || !program.has(action)) continue;
      recomputed_.resize(static_cast<size_t>(program.stages()) *
                         static_cast<size_t>(program.micro_batches));
      recomputed_[Index(action)] = true;
    }
  }
}

}  // namespace strata::schedule
