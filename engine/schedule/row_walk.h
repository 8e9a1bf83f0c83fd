// RowWalk: what the actions of a rank's row do to what the rank holds: what each takes, keeps,
// frees and gives. Memory, buffers, live activations, predictions and pictures are all read off it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/schedule/links.h"
#include "engine/schedule/program.h"

namespace strata::schedule {

/// What a stage holds for one micro-batch beside what it always has; in bytes, or in any unit.
struct Held {
  int64_t kept = 0;        ///< from F to I or B
  int64_t recomputed = 0;  ///< beside it, from R to I or B; only where R runs
  int64_t deferred = 0;    ///< from I to W
};

/// A simple action (of ActionParts) at its place in its row.
struct Step {
  const Program* program = nullptr;
  int rank = 0;
  int position = 0;  ///< in the row, of the action that it is or is part of
  bool ends_action = true;
  bool is_recomputed = false;  ///< R runs for its stage and micro-batch
  Action part = {};

  int stage() const { return part.stage; }
  int micro_batch() const { return part.micro_batch; }
  /// Where from and where to F, I and B take and give; nowhere for others.
  Passage takes() const {
    return PassesMessages(part.kind) ? PassageOf(*program, ReadBy(part)) : Passage::kNone;
  }
  Passage gives() const {
    return PassesMessages(part.kind) ? PassageOf(*program, GivenBy(part)) : Passage::kNone;
  }
  /// How much more the rank holds when it is done, where its stage holds this.
  int64_t Change(const Held& held) const;
};

/// The walk over a program, which must outlive it. Leaves out actions of stages or micro-batches
/// that do not exist, and idle cells.
class RowWalk {
 public:
  explicit RowWalk(const Program& program);

  /// Calls `visit` with every Step of the rank's row, in order.
  template <class Visit>
  void Over(int rank, Visit visit) const {
    const auto& row = program_.rows[rank];
    Step step{.program = &program_, .rank = rank};
    for (const Action& action : row) {
      const ActionParts parts(action);
      for (const Action& part : parts) {
        if (!program_.has(part)) continue;
        step.part = part;
        step.ends_action = &part + 1 == parts.end();
        step.is_recomputed = IsRecomputed(part);
        visit(std::as_const(step));
      }
      ++step.position;
    }
  }

  /// The same of all rows.
  template <class Visit>
  void OverAll(Visit visit) const {
    for (int rank = 0; rank < program_.ranks(); ++rank) Over(rank, visit);
  }

 private:
  size_t Index(const Action& part) const {
    return static_cast<size_t>(part.stage) * static_cast<size_t>(program_.micro_batches) +
           static_cast<size_t>(part.micro_batch);
  }
  bool IsRecomputed(const Action& part) const {
    return !recomputed_.empty() && part.micro_batch >= 0 && recomputed_[Index(part)];
  }

  const Program& program_;
  std::vector<bool> recomputed_;  ///< by stage and micro-batch; empty where nothing is
};

}  // namespace strata::schedule
