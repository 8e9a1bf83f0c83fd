// DualPipeV (DeepSeek-V3, arXiv:2412.19437, section 3.2.1, cut in half), in the order of the
// reference deepseek-ai/DualPipe, dualpipev.py.
#include <vector>

#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/generators/v_row.h"

namespace strata::schedule {
namespace {

// Builds the row of one rank in the eight phases of the reference (deepseek-ai/DualPipe,
// dualpipev.py).
class RowBuilder {
 public:
  RowBuilder(int ranks, int rank, int micro_batches)
      : behind_(ranks - 1 - rank),
        rank_(rank),
        overlaps_(micro_batches - 2 * ranks + rank + 1),
        row_(ranks, rank) {}

  std::vector<Action> Build() {
    WarmUp();
    Overlap();
    Drain();
    return row_.Take();
  }

 private:
  void WarmUp() {
    for (int i = 0; i < 2 * behind_; ++i) row_.Forward(0);
    for (int i = 0; i < rank_ + 1; ++i) row_.Forward(0), row_.Forward(1);
    for (int i = 0; i < behind_; ++i) {
      row_.Backward(1, Kind::kInputGrad);
      row_.WeightGrad();
      row_.Forward(1);
    }
  }

  void Overlap() {
    for (int i = 0; i < overlaps_; ++i) {
      // At the turn of the V, the first backward needs the forward that it would overlap with, so
      // the two run one after the other.
      const bool is_first_at_turn = i == 0 && behind_ == 0;
      if (is_first_at_turn) {
        row_.Forward(0);
        row_.Backward(1, Kind::kBackward);
      } else {
        row_.Overlap(0);
      }
      row_.Overlap(1);
    }
    for (int i = 0; i < behind_; ++i) {
      row_.Backward(1, Kind::kBackward);
      row_.Overlap(1);
    }
  }

  // The last backwards. Their second half is split, so that weight gradients fill the drain.
  void Drain() {
    const int whole = (rank_ + 1) / 2 * 2 + (rank_ % 2 == 0 ? 1 : 0);
    for (int i = 0; i < 2 * (rank_ + 1); ++i) {
      row_.Backward(i % 2 == 0 ? 1 : 0, i < whole ? Kind::kBackward : Kind::kInputGrad);
    }
    for (int i = 0; i < behind_; ++i) {
      row_.WeightGrad();
      row_.Backward(0, Kind::kInputGrad);
    }
    while (row_.owes()) row_.WeightGrad();
  }

  const int behind_;  // the number of ranks after this one
  const int rank_;
  const int overlaps_;  // the number of rounds of the steady state
  VRow row_;
};

}  // namespace

// P ranks with two stages each, M micro-batches; [F B] is an overlap, idle steps are left out.
// P = 2, M = 4:
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 [0F3 3B1] [3F2 0B0] 3B2 [3F3 0B1] 3B3 0I2 0W2 0I3 0W3
//   rank 1 | . 1F0 2F0 1F1 2F1 1F2 2B0 [2F2 1B0] [1F3 2B1] [2F3 1B1] 2B2 1B2 2I3 1I3 2W3 1W3
//
// A forward of one stage runs beside a backward of the other, so that each hides the other's
// messages.
Program DualPipeV(const Sizes& sizes) {
  const int P = sizes.ranks, M = sizes.micro_batches;
  Program program = IdleGrid("dualpipev", VMap(P, 2), P, M, 0);
  for (int r = 0; r < P; ++r) program.rows[r] = RowBuilder(P, r, M).Build();
  return WithIdleSteps(program);
}

}  // namespace strata::schedule
