// Rebalancer: whether the layers of a training that runs should lie on other ranks, from what its
// stages were measured to take. Nothing is measured here, and nothing moves.
//
// Two things are learnt. What layers take: of the first steps, where each stage's measured time is
// shared out among its layers as predicted, and of those behind a move, where what was not expected
// is due to the layers that came. And how fast ranks are: from all other steps, what a rank's
// layers take against what they took at first. So a guess about a layer that was wrong is put right
// once, and a rank that another program slows down is known as such: its layers cost less
// elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/forecast/proved_programs.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// Where layers should be from now on.
struct BetterCuts {
  std::vector<int> cuts;
  std::shared_ptr<const ModelCosts> costs;  ///< of the layers, each on its new rank
  double saving = 0;                        ///< of a step's time
  std::string why;
};

/// As rank 0 tells the others, who know the rest of the costs; of the layers' seconds every bit.
std::string ToText(const BetterCuts& better);
BetterCuts ParseBetterCuts(const std::string& text, const ModelCosts& known);

class Rebalancer {
 public:
  static constexpr int kWindow = StepWindow::kSteps, kUnsettled = StepWindow::kUnsettled;
  /// The least share of the rest of the training that a move must gain, its own time taken off, and
  /// the largest share of the training that all moves, and searches for them, may take.
  static constexpr double kLeastGain = 0.05, kMostTime = 0.05;

  /// Why layers do not move by themselves; "" = they do. They do not where cuts, or all of
  /// partition, are named, where moving changes bits (schedules that accumulate in another order),
  /// with layers of strata.layer{...}, which may keep things in `self`, under a memory limit, and
  /// where no costs of this machine are known or no stage can be timed from the host.
  static std::string WhyNot(const Job& job, const Plan& plan, ProvedPrograms& programs,
                            Script* script);

  /// `plan`: that of the training, which Moved() says has changed. Everything must outlive this.
  /// REQUIRES: WhyNot() is "".
  Rebalancer(const Job& job, const Plan& plan, Script* script);

  /// Behind each step; `left`: steps still to come. Gives cuts that two windows in a row have found
  /// to be better. The same cuts may come again if nobody moves. Behind a search that found nothing
  /// so many windows pass without one, behind the next such search twice as many, unless there is
  /// more to gain by then.
  std::optional<BetterCuts> AfterStep(const MeasuredStep& step, int64_t left);
  /// So long the last AfterStep() has taken, which counts as the time of moves does.
  void AddSearchTime(double seconds) { moved_ += seconds; }
  /// The plan has other cuts now; how long it took to move.
  void Moved(double seconds);

 private:
  struct Choice {
    std::vector<int> cuts;
    double seconds = 0;
  };

  void Learn(const std::vector<StageSeconds>& stages);
  void LearnFromMove(const std::vector<StageSeconds>& stages);
  ModelCosts Costs(const std::vector<int>& cuts) const;
  std::optional<BetterCuts> Decide(const MeasuredStep& step, int64_t left);
  void FindProgram();
  double LeastSaving(double step_seconds, int64_t left) const;
  double MovingSeconds() const;
  double MostSaving(const std::vector<StageSeconds>& stages) const;
  Choice Search();
  std::vector<int> FastestCuts() const;
  std::optional<double> SecondsOf(const std::vector<int>& cuts);
  double SecondsNow() const;
  std::string Why(const std::vector<StageSeconds>& stages) const;

  const Job& job_;
  const Plan& plan_;
  Script* const script_;
  std::optional<schedule::Program> program_;  // that runs, once it matters
  int64_t most_memory_ = 0;                   // bytes that a rank may take
  std::optional<ModelCosts> base_;            // of the layers, once they were measured
  std::vector<int> learnt_at_;                // the cuts of the last window
  std::vector<double> slowness_;  // of each rank of the pipe axis, against its first steps
  StepWindow window_;
  int found_ = 0;                   // windows in a row that found better cuts
  int waits_ = 0, skips_ = 0;       // windows without a search: still to come, all in a row
  double in_vain_ = 0;              // MostSaving() of the last search that found nothing
  double elapsed_ = 0, moved_ = 0;  // seconds of all steps, of all moves and searches
  double last_move_ = 0;            // seconds; 0 = none
  int64_t left_ = 0;                // actions that may still be simulated for this decision
};

}  // namespace strata
