// FitReport: what `strata plan` says about a plan that does not fit into memory, and about
// recomputation that saves none.
#pragma once

#include <functional>
#include <string>

#include "engine/forecast/forecast.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/search/fit_ways.h"

namespace strata::launcher {

class FitReport {
 public:
  /// For plans of the job with these options. `job` must outlive this object.
  FitReport(const Job& job, PlanOptions options, Script* script)
      : job_(job), options_(std::move(options)), script_(script) {}

  /// Returns plan(). If that throws a ConfigError because the job exceeds its memory limit, the
  /// error's text is followed by the ways to make it fit.
  Plan Planned(const std::function<Plan()>& plan) const;
  /// Adds RecomputeNote() to the plan's notices.
  void AddNotices(Plan& plan) const;
  /// Says, for a plan for CPUs, that its ranks together need more memory than this machine has, and
  /// what would fit. "" if it fits.
  std::string TooLargeText(const Plan& plan, const StepForecast& step) const;

 private:
  enum class Of { kFullestRank, kAllRanks };
  PredictNeeds Predictions(Of of) const;

  const Job& job_;
  const PlanOptions options_;
  Script* const script_;
};

}  // namespace strata::launcher
