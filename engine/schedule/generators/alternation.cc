// The rows of 1F1B and of the schedules that differ from it only in the warm-up, the split of
// backwards and the delay (lag) of W. Several schedules are calls of Alternate() with other
// parameters. The time is linear in the number of actions.
#include <algorithm>
#include <vector>

#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {
namespace {

// One micro-batch on one of the rank's stages (chunks), which each rank counts from 0.
struct Turn {
  int chunk = 0;
  int micro_batch = 0;
};

// The sizes of the groups. There are as many groups as possible with at least one micro-batch for
// every rank in each; larger groups come first.
std::vector<int> Groups(int micro_batches, int ranks) {
  const int count = std::max(1, micro_batches / ranks);
  std::vector<int> groups(count, micro_batches / count);
  for (int i = 0; i < micro_batches % count; ++i) ++groups[i];
  return groups;
}

// The order of a rank's forwards, or of its backwards: group by group, and within a group chunk by
// chunk.
std::vector<Turn> Turns(const std::vector<int>& groups, int chunks, bool is_forward) {
  std::vector<Turn> turns;
  int first = 0;
  for (int group : groups) {
    for (int c = 0; c < chunks; ++c) {
      const int chunk = is_forward ? c : chunks - 1 - c;
      for (int m = first; m < first + group; ++m) turns.push_back({chunk, m});
    }
    first += group;
  }
  return turns;
}

class Alternator {
 public:
  Alternator(const Sizes& sizes, const Alternation& alternation)
      : ranks_(sizes.ranks),
        alternation_(alternation),
        groups_(Groups(sizes.micro_batches, sizes.ranks)),
        ahead_((sizes.stages_per_rank - 1) * groups_.front()),
        forwards_(Turns(groups_, sizes.stages_per_rank, true)),
        backwards_(Turns(groups_, sizes.stages_per_rank, false)) {}

  std::vector<Action> Row(int rank) const {
    const int count = static_cast<int>(forwards_.size());
    const int warmup = std::min(ahead_ + alternation_.lead * (ranks_ - 1 - rank), count);
    const Kind backward = alternation_.splits ? Kind::kInputGrad : Kind::kBackward;
    std::vector<Action> row;
    const auto add = [&](Kind kind, const Turn& turn) {
      row.push_back(MakeAction(turn.chunk * ranks_ + rank, kind, turn.micro_batch));
    };
    int weights = alternation_.splits ? 0 : count;
    for (int i = 0; i < count + warmup; ++i) {
      const int back = i - warmup;
      if (i < count) add(Kind::kForward, forwards_[i]);
      if (back >= 0) add(backward, backwards_[back]);
      const bool owes = weights < count && back >= alternation_.lag * rank;
      if (owes) add(Kind::kWeightGrad, backwards_[weights++]);
    }
    while (weights < count) add(Kind::kWeightGrad, backwards_[weights++]);
    return row;
  }

 private:
  const int ranks_;
  const Alternation& alternation_;
  const std::vector<int> groups_;
  const int ahead_;  // the number of forwards that every rank runs before its first backward
  const std::vector<Turn> forwards_;
  const std::vector<Turn> backwards_;
};

}  // namespace

Program Alternate(const Sizes& sizes, const Alternation& alternation) {
  Program program = IdleGrid(alternation.name, LoopMap(sizes.ranks, sizes.stages_per_rank),
                             sizes.ranks, sizes.micro_batches, 0);
  const Alternator alternator(sizes, alternation);
  for (int r = 0; r < sizes.ranks; ++r) program.rows[r] = alternator.Row(r);
  return WithIdleSteps(program);
}

}  // namespace strata::schedule
