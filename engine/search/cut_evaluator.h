// CutEvaluator: evaluates the cuts of one plan on this machine, without planning each of them anew.
//
// Of a plan only the numbers of evaluate.h matter to a search. They follow from the costs of its
// stages, which a StageTable remembers and shares between stages that are alike, so that moving a
// bound costs two look-ups. Programs are made once for each schedule. What else a plan has (checks
// of neighbouring layers, tensors at its cuts) a search makes only of cuts that it takes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/forecast/evaluate.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/search/cluster/stage_table.h"

namespace strata {

class CutEvaluator {
 public:
  /// `plan`: any cut of the job, whose costs have seconds. `job` and `script` must outlive this
  /// object. REQUIRES: recompute is not "auto".
  CutEvaluator(const Job& job, const Plan& plan, Script* script);

  CutEvaluator(const CutEvaluator&) = delete;

  /// The step with these cuts, stages on ranks and schedule, which has a name or is the user's own
  /// (not "auto"). Throws ConfigError as TrainingProgram() does.
  StepEvaluation Of(const std::vector<int>& bounds, const std::vector<int>& stage_ranks,
                    const std::string& schedule);

  /// The bytes that cross the cut before a layer.
  int64_t crossing(int place) const { return crossing_[static_cast<size_t>(place)]; }

 private:
  /// The stages' ranks, the schedule, and the stages that recompute.
  using Key = std::tuple<std::vector<int>, std::string, std::vector<int>>;

  void PlaceAt(const std::vector<int>& bounds, const std::vector<int>& stage_ranks);
  StageCost CostOf(int begin, int end) const;
  std::vector<StageCost> Stages() const;

  const Job& job_;
  Plan plan_;  ///< with the cuts at hand in bounds, stages (without tensors), layers and ties
  Script* const script_;
  std::vector<int64_t> crossing_;
  std::optional<search::StageTable> table_;  ///< none if a function chooses what is recomputed
  std::map<Key, std::unique_ptr<Evaluator>> evaluators_;
};

}  // namespace strata
