// Rebalancer: decides during a training whether layers should move to other ranks, from the
// measured seconds of the stages. Nothing is measured here, and nothing moves.
//
// It learns two things. First, the seconds of layers: the first window shares each stage's measured
// time out among its layers as predicted, and after a move, the difference from what was expected
// is attributed to the layers that moved in. Second, the speed of ranks: in all other windows, the
// time of a rank's layers is compared with their first time. So a wrong estimate of a layer is
// corrected once, and a rank that another program slows down is recognised as slow: its layers are
// expected to be faster on other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/forecast/evaluate.h"
#include "engine/forecast/proved_programs.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/search/climb.h"
#include "engine/search/cut_evaluator.h"

namespace strata {

/// Cuts that are predicted to be faster than the current ones.
struct BetterCuts {
  std::vector<int> cuts;
  std::shared_ptr<const ModelCosts> costs;  ///< of the layers, each on its new rank
  double saving = 0;                        ///< share of the step's time
  std::string why;
};

/// The text that rank 0 sends to the other ranks, which know the rest of the costs. The layers'
/// seconds are exact to the last bit.
std::string ToText(const BetterCuts& better);
BetterCuts ParseBetterCuts(const std::string& text, const ModelCosts& known);

class Rebalancer {
 public:
  static constexpr int kWindow = StepWindow::kSteps, kUnsettled = StepWindow::kUnsettled;
  /// kLeastGain: the smallest share of the remaining training that a move must save, net of its own
  /// time. kMostTime: the largest share of the training that all moves and the searches for them
  /// may take.
  static constexpr double kLeastGain = 0.05, kMostTime = 0.05;

  /// The reason why layers do not move in this training; "" if they do. They do not move if the
  /// cuts or a partition method are named, if moving would change results bit by bit (schedules
  /// that accumulate gradients in another order), with layers of strata.layer{...}, which may keep
  /// things in `self`, under a memory limit, and if no costs of this machine are known or stages
  /// cannot be timed from the host.
  static std::string WhyNot(const Job& job, const Plan& plan, ProvedPrograms& programs,
                            Script* script);

  /// The cuts with the shortest step for the costs and the slowness of a plan that has not run yet;
  /// the plan's own if none is shorter. REQUIRES: the plan's costs have seconds.
  static std::vector<int> CutsBeforeSteps(const Job& job, const Plan& plan, Script* script);

  /// `plan`: the training's plan; call Moved() after it has changed. All arguments must outlive
  /// this object. REQUIRES: WhyNot() is "".
  Rebalancer(const Job& job, const Plan& plan, Script* script);

  /// Call after each step; `left`: the number of steps still to come. Returns better cuts once two
  /// windows in a row have found some. They are returned again if the training does not move. After
  /// a search that finds nothing some windows pass without a search, and twice as many after the
  /// next such search, unless more can be gained by then.
  std::optional<BetterCuts> AfterStep(const MeasuredStep& step, int64_t left);
  /// Adds the time of the last AfterStep(), which counts against kMostTime as moves do.
  void AddSearchTime(double seconds) { moved_ += seconds; }
  /// Call after the plan has got other cuts. `seconds`: the duration of the move.
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
  StepEvaluation Now();
  double LeastSaving(double step_seconds, int64_t left) const;
  double MovingSeconds() const;
  double MostSaving(const std::vector<StageSeconds>& stages) const;
  Choice Search(double now);
  std::vector<int> FastestCuts() const;
  Plan Recut(const std::vector<int>& cuts) const;
  std::optional<double> SecondsOf(const std::vector<int>& cuts, CutEvaluator& evaluator,
                                  Effort& effort) const;
  std::string Why(const std::vector<StageSeconds>& stages) const;

  const Job& job_;
  const Plan& plan_;
  Script* const script_;
  std::optional<Evaluator> program_;  // of the current program, once it is needed
  int64_t most_memory_ = 0;           // bytes that a rank may take
  std::optional<ModelCosts> base_;    // costs of the layers, once they were measured
  std::vector<int> learnt_at_;        // the cuts of the last window
  /// How many times as long the rank takes as the plan's slowness says.
  double Change(int rank) const { return slowness_[rank] / plan_.SlownessOf(rank); }

  // Per rank of the pipe axis: the plan's slowness, times its time relative to its first steps.
  std::vector<double> slowness_;
  StepWindow window_;
  int found_ = 0;                   // consecutive windows that found better cuts
  int waits_ = 0, skips_ = 0;       // windows without a search: remaining, and in total
  double in_vain_ = 0;              // MostSaving() at the last search that found nothing
  double elapsed_ = 0, moved_ = 0;  // seconds of all steps; of all moves and searches
  double last_move_ = 0;            // seconds; 0 = none
};

}  // namespace strata
