#include "engine/schedule/row_walk.h"

#include <algorithm>

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

Passage Step::PassageOf(const Message& message) const {
  const int sender = SenderOf(message.direction, message.stage);
  const int first = std::min(message.stage, sender), last = std::max(message.stage, sender);
  if (first < 0 || last >= program->stages()) return Passage::kNone;
  return program->crosses_after(first) ? Passage::kAfar : Passage::kLocal;
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
