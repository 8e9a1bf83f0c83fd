#include "launcher/report/fit_report.h"

#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/machine/memory.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/search/alternative.h"

namespace strata::launcher {
namespace {

/// The memory of all ranks of the plan together.
int64_t AllMemory(const Plan& plan, const StepForecast& step) {
  int64_t bytes = 0;
  for (const RankMemory& rank : step.memory) bytes += rank.total();
  return bytes * plan.topology.world_size() / plan.pipe();
}

}  // namespace

PredictNeeds FitReport::Predictions(Of of) const {
  return [this, of](const Job& job) -> std::optional<PlanNeeds> {
    const bool has_more_ranks =
        job.parallel.pipe != job_.parallel.pipe || job.parallel.data != job_.parallel.data;
    if (of == Of::kAllRanks && has_more_ranks) return std::nullopt;  // they share one memory
    Alternative tried = TryJobHere(job, options_, script_);
    if (!tried.trouble.empty() && job.memory > 0) {  // perhaps it only exceeds the limit
      Job unlimited = job;
      unlimited.memory = 0;
      tried = TryJobHere(std::move(unlimited), options_, script_);
    }
    if (!tried.trouble.empty()) return std::nullopt;
    const int64_t memory =
        of == Of::kAllRanks ? AllMemory(tried.plan, tried.forecast) : tried.forecast.peak_memory();
    return NeedsOf(tried.plan, memory, tried.forecast.step());
  };
}

Plan FitReport::Planned(const std::function<Plan()>& plan) const {
  try {
    return plan();
  } catch (const ConfigError& error) {
    if (job_.memory == 0) throw;
    const PredictNeeds predict = Predictions(Of::kFullestRank);
    const std::optional<PlanNeeds> now = predict(job_);
    if (!now || now->memory <= job_.memory) throw;  // it is impossible for another reason
    throw ConfigError(
        Str(error.what(), "\n", FitWaysText(WaysToFit(job_, *now, job_.memory, predict))));
  }
}

void FitReport::AddNotices(Plan& plan) const {
  const std::string note = RecomputeNote(job_, Predictions(Of::kFullestRank));
  if (!note.empty()) plan.notices.push_back(note);
}

std::string FitReport::TooLargeText(const Plan& plan, const StepForecast& step) const {
  const int64_t needed = AllMemory(plan, step), most = ReadMachineMemory().most;
  if (plan.device != "cpu" || needed <= most) return "";
  const std::vector<FitWay> ways =
      WaysToFit(job_, NeedsOf(plan, needed, step.step()), most, Predictions(Of::kAllRanks));
  return Str("this plan does not fit: its ranks need ", ShowBytes(needed), ", this machine has ",
             ShowBytes(most), "\n", FitWaysText(ways), "\n");
}

}  // namespace strata::launcher
