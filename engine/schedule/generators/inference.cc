// Evaluation: forwards only, in the order of DeepSpeed's InferenceSchedule where ranks have one stage.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {
namespace {

// Deals out time steps: in each, a rank runs the highest of its stages whose next input was there
// before the step.
class ForwardDealer {
 public:
  ForwardDealer(const Program& program)
      : micro_batches_(program.micro_batches),
        stages_(program.ranks()),
        done_(program.stages(), 0) {
    for (int s = program.last_stage(); s >= 0; --s) stages_[program.stage_ranks[s]].push_back(s);
  }

  bool is_done() const { return done_.back() == micro_batches_; }

  // Adds one cell to every row.
  void Step(std::vector<std::vector<Action>>& rows) {
    chosen_.clear();
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      const int stage = Choose(static_cast<int>(rank));
      rows[rank].push_back(stage < 0 ? Action() : MakeAction(stage, Kind::kForward, done_[stage]));
      if (stage >= 0) chosen_.push_back(stage);
    }
    for (int stage : chosen_) ++done_[stage];
  }

 private:
  // -1 where the rank has to wait.
  int Choose(int rank) const {
    for (int s : stages_[rank]) {
      const int available = s == 0 ? micro_batches_ : done_[s - 1];
      if (done_[s] < available) return s;
    }
    return -1;
  }

  int micro_batches_;
  std::vector<std::vector<int>> stages_;  // of each rank, descending
  std::vector<int> done_;                 // micro-batches that each stage has behind it
  std::vector<int> chosen_;
};

}  // namespace

// P ranks, M micro-batches; a column is a time step. P = 3, M = 4, one stage per rank:
//
//   stage 0 | F0 F1 F2 F3 .  .
//   stage 1 | .  F0 F1 F2 F3 .
//   stage 2 | .  .  F0 F1 F2 F3
Program Inference(const Sizes& sizes) {
  return EvaluationProgram(LoopMap(sizes.ranks, sizes.stages_per_rank), sizes.micro_batches);
}

Program EvaluationProgram(const std::vector<int>& stage_ranks, int micro_batches) {
  STRATA_CHECK(!stage_ranks.empty() && micro_batches > 0) << "nothing to run";
  const int ranks = *std::max_element(stage_ranks.begin(), stage_ranks.end()) + 1;
  Program program = IdleGrid("inference", stage_ranks, ranks, micro_batches, 0);
  program.is_training = false;
  ForwardDealer dealer(program);
  while (!dealer.is_done()) dealer.Step(program.rows);
  return program;
}

}  // namespace strata::schedule
