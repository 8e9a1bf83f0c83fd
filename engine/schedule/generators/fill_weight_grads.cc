#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/program/links.h"

namespace strata::schedule {
namespace {

class Filler {
 public:
  Filler(const Program& program, int memory)
      : program_(program), memory_(memory), ranks_(program.ranks()), is_given_(program, false) {
    for (int r = 0; r < program.ranks(); ++r) {
      for (const Action& action : program.rows[r]) {
        const bool is_fixed = PassesMessages(action.kind);
        if (is_fixed) ranks_[r].fixed.push_back(action);
      }
    }
  }

  bool is_done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.next == rank.fixed.size() && rank.paid == rank.owed.size();
    });
  }

  // Adds one cell to every row. What is given in a step can be read in the next.
  void Step(std::vector<std::vector<Action>>& rows) {
    chosen_.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].push_back(Choose(ranks_[r]));
      if (rows[r].back().kind != Kind::kIdle) chosen_.push_back(rows[r].back());
    }
    STRATA_CHECK(!chosen_.empty()) << program_.name << " needs more memory than " << memory_;
    for (const Action& action : chosen_) Finish(action);
  }

 private:
  struct Rank {
    std::vector<Action> fixed;  // F and I, in their order
    std::vector<Action> owed;   // W of the I that ran, oldest first
    size_t next = 0;            // of fixed
    size_t paid = 0;            // of owed
    int alive = 0;              // activations
  };

  Action Choose(Rank& rank) const {
    if (rank.next < rank.fixed.size() && CanRun(rank)) return rank.fixed[rank.next++];
    return rank.paid < rank.owed.size() ? rank.owed[rank.paid++] : Action();
  }

  bool CanRun(const Rank& rank) const {
    const Action& action = rank.fixed[rank.next];
    if (action.kind == Kind::kForward && rank.alive == memory_) return false;
    const Message read = ReadBy(action);
    return PassageOf(program_, read) == Passage::kNone || is_given_[read];
  }

  void Finish(const Action& action) {
    Rank& rank = ranks_[program_.stage_ranks[action.stage]];
    if (action.kind == Kind::kForward) ++rank.alive;
    if (action.kind == Kind::kWeightGrad) {
      --rank.alive;
      return;
    }
    if (action.kind == Kind::kInputGrad) {
      rank.owed.push_back(MakeAction(action.stage, Kind::kWeightGrad, action.micro_batch));
    }
    const Message given = GivenBy(action);
    if (PassageOf(program_, given) != Passage::kNone) is_given_[given] = true;
  }

  const Program& program_;
  const int memory_;
  std::vector<Rank> ranks_;
  PerMessage<bool> is_given_;
  std::vector<Action> chosen_;
};

}  // namespace

Program FillWithWeightGrads(const Program& program, int memory) {
  Program filled =
      IdleGrid(program.name, program.stage_ranks, program.ranks(), program.micro_batches, 0);
  Filler filler(program, memory);
  while (!filler.is_done()) filler.Step(filled.rows);
  return filled;
}

}  // namespace strata::schedule
