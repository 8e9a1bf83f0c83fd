// Schedules from the pattern of one micro-batch (Qi et al., arXiv:2405.15362). For each rank the F
// and I of the block are placed in a table of 6 steps (a period); W take the two steps that are
// left. The table, repeated for every micro-batch, gives the row of each rank and its peak memory.
// A list schedule (FillWithWeightGrads()) then runs the same order as early as this memory allows.
// The time is linear in the number of actions.
#include "engine/schedule/generators/building_block.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/lifetimes.h"

namespace strata::schedule {
namespace {

constexpr int kPeriod = 6;  // the number of actions of a rank for each micro-batch

// The action of a rank in one step of each period: F, I or W of one of its stages. It runs first in
// step `first`.
struct Slot {
  Kind kind = Kind::kIdle;
  int stage = -1;
  int first = -1;
};

// The first step after `step` that equals `residue` modulo the period.
int StepAfter(int step, int residue) {
  const int next = step + 1;
  return next + ((residue - next) % kPeriod + kPeriod) % kPeriod;
}

// The table of a rank's steps, indexed by the step modulo the period.
class Slots {
 public:
  Slots(const BuildingBlock& block, int ranks, int rank) {
    const int up = rank, down = 2 * ranks - 1 - rank, behind = ranks - 1 - rank;
    const int across = ranks - 1;  // hops of a pass from one end of the ranks to the other
    const int* hop = block.hop;
    const int* wait = block.wait;
    const int turn = hop[0] * across + 1 + wait[1];         // step of the first F of the pass down
    const int loss = turn + hop[1] * across + 1 + wait[2];  // step of the first I
    const int back =
        loss + hop[2] * across + 1 + wait[3];  // step of the first I of the pass back to rank 0
    const int input_grads[] = {loss + hop[2] * rank, back + hop[3] * behind};
    Add(Kind::kForward, up, hop[0] * rank);
    Add(Kind::kForward, down, turn + hop[1] * behind);
    Add(Kind::kInputGrad, down, input_grads[0]);
    Add(Kind::kInputGrad, up, input_grads[1]);
    AddWeightGrads({down, up}, input_grads);
  }

  const Slot& At(int step) const { return slots_[step % kPeriod]; }

  int last() const {
    int last = 0;
    for (const Slot& slot : slots_) last = std::max(last, slot.first);
    return last;
  }

 private:
  void Add(Kind kind, int stage, int first) {
    Slot& slot = slots_[first % kPeriod];
    STRATA_CHECK(slot.kind == Kind::kIdle) << "two actions in step " << first;
    slot = {kind, stage, first};
  }

  // Puts the two W into the two steps that are left, in the order in which activations live for the
  // shorter time.
  void AddWeightGrads(const int (&stages)[2], const int (&input_grads)[2]) {
    std::vector<int> left;
    for (int step = 0; step < kPeriod; ++step) {
      if (slots_[step].kind == Kind::kIdle) left.push_back(step);
    }
    const auto total = [&] {
      return StepAfter(input_grads[0], left[0]) + StepAfter(input_grads[1], left[1]);
    };
    const int straight = total();
    std::swap(left[0], left[1]);
    if (straight <= total()) std::swap(left[0], left[1]);
    for (int i = 0; i < 2; ++i) {
      Add(Kind::kWeightGrad, stages[i], StepAfter(input_grads[i], left[i]));
    }
  }

  Slot slots_[kPeriod];
};

std::vector<Action> RowOf(const Slots& slots, int micro_batches) {
  std::vector<Action> row;
  const int end = slots.last() + kPeriod * (micro_batches - 1);
  for (int step = 0; step <= end; ++step) {
    const Slot& slot = slots.At(step);
    const int m = step < slot.first ? -1 : (step - slot.first) / kPeriod;
    if (m >= 0 && m < micro_batches) row.push_back(MakeAction(slot.stage, slot.kind, m));
  }
  return row;
}

}  // namespace

Program Repeat(const BuildingBlock& block, const Sizes& sizes) {
  const int P = sizes.ranks, M = sizes.micro_batches;
  Program pattern = IdleGrid(block.name, VMap(P, 2), P, M, 0);
  for (int r = 0; r < P; ++r) pattern.rows[r] = RowOf(Slots(block, P, r), M);
  const std::vector<int> peaks = PeakActivations(pattern);
  return FillWithWeightGrads(pattern, *std::max_element(peaks.begin(), peaks.end()));
}

}  // namespace strata::schedule
