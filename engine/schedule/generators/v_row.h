// VRow: builds the row of one rank of a V with two stages per rank, action by action. Private to
// the package.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/schedule/action.h"

namespace strata::schedule {

/// Chunk 0 is the rank's stage on the way to the last rank, chunk 1 its stage on the way back. VRow
/// counts the micro-batches: the forwards of a chunk take them in order, and so do its backwards.
class VRow {
 public:
  VRow(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  void Forward(int chunk) { row_.push_back(NextForward(chunk)); }
  /// Appends a backward: kBackward, or kInputGrad, whose weight gradient is then due.
  void Backward(int chunk, Kind kind) { row_.push_back(NextBackward(chunk, kind)); }
  /// Appends an overlap of a forward of `forward_chunk` and a whole backward of the other chunk.
  void Overlap(int forward_chunk) {
    const Action forward = NextForward(forward_chunk);
    row_.push_back(MakeOverlap(forward, NextBackward(1 - forward_chunk, Kind::kBackward)));
  }
  /// Appends the oldest weight gradient that is due. REQUIRES: there is one.
  void WeightGrad() { PayAt(owed_.begin()); }
  /// Appends the oldest weight gradient of one chunk that is due. REQUIRES: there is one.
  void WeightGrad(int chunk) {
    PayAt(std::find_if(owed_.begin(), owed_.end(),
                       [&](const Action& owed) { return owed.stage == stages_[chunk]; }));
  }

  int forwards(int chunk) const { return forwards_[chunk]; }
  bool owes() const { return !owed_.empty(); }
  std::vector<Action> Take() { return std::move(row_); }

 private:
  Action NextForward(int chunk) {
    return MakeAction(stages_[chunk], Kind::kForward, forwards_[chunk]++);
  }

  Action NextBackward(int chunk, Kind kind) {
    const int m = backwards_[chunk]++;
    if (kind == Kind::kInputGrad) {
      owed_.push_back(MakeAction(stages_[chunk], Kind::kWeightGrad, m));
    }
    return MakeAction(stages_[chunk], kind, m);
  }

  void PayAt(std::vector<Action>::iterator owed) {
    STRATA_CHECK(owed != owed_.end()) << "no weight gradient is owed";
    row_.push_back(*owed);
    owed_.erase(owed);
  }

  const int stages_[2];
  int forwards_[2] = {};
  int backwards_[2] = {};
  std::vector<Action> owed_;  // oldest first
  std::vector<Action> row_;
};

}  // namespace strata::schedule
