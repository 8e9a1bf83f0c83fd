// RowWalk: walks over the actions of a rank's row and tells what each takes, keeps, frees and
// gives. Memory, buffers, live activations, predictions and pictures are all computed with it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/schedule/links.h"
#include "engine/schedule/program.h"

namespace strata::schedule {

/// The memory that a stage holds for one micro-batch in addition to what it always holds, in bytes
/// or any other unit.
struct Held {
  int64_t kept = 0;        ///< held from F until I or B
  int64_t recomputed = 0;  ///< held in addition from R until I or B, if R runs
  int64_t deferred = 0;    ///< held from I until W
};

/// A simple action (of ActionParts) and its place in a row.
struct Step {
  const Program* program = nullptr;
  int rank = 0;
  int position = 0;  ///< in the row; the parts of an overlap have the position of the overlap
  bool ends_action = true;
  bool is_recomputed = false;  ///< true if the program has an R for its stage and micro-batch
  Action part = {};

  int stage() const { return part.stage; }
  int micro_batch() const { return part.micro_batch; }
  /// Where F, I and B take their message from and give theirs to; kNone for other kinds.
  Passage takes() const {
    return PassesMessages(part.kind) ? PassageOf(*program, ReadBy(part)) : Passage::kNone;
  }
  Passage gives() const {
    return PassesMessages(part.kind) ? PassageOf(*program, GivenBy(part)) : Passage::kNone;
  }
  /// The change of the memory that the rank holds, when this step is done. `held` is that of its
  /// stage.
  int64_t Change(const Held& held) const;
};

/// The walk over a program, which must outlive it. It skips idle cells and actions whose stage or
/// micro-batch does not exist.
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

  /// Calls `visit` with every Step of all rows, rank by rank.
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
  std::vector<bool> recomputed_;  ///< by stage and micro-batch; empty if the program has no R
};

}  // namespace strata::schedule
