#include "engine/search/alternative.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/decisions.h"
#include "engine/forecast/forecast_text.h"
#include "engine/layers/parts.h"
#include "engine/plan/plan_text.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

std::string MethodOf(const Job& job) {
  if (job.partition.method != "cuts") return job.partition.method;
  return CutNames(job.layers).Text(job.partition.bounds);
}

std::string Stages(const Job& job) {
  const int pipe = std::max(job.parallel.pipe, 1);
  return job.stages_per_rank <= 1 ? Str(pipe) : Str(pipe, "x", job.stages_per_rank);
}

/// The job with the plan's choices in the place of "auto", except for the cuts.
Job Chosen(const Alternative& alternative) {
  Job job = alternative.job;
  if (!alternative.trouble.empty()) return job;
  job = Decided(std::move(job), alternative.plan);
  job.partition = alternative.job.partition;
  return job;
}

std::vector<std::string> ChoiceCells(const Alternative& alternative) {
  const Job job = Chosen(alternative);
  return {MethodOf(job), Stages(job), job.schedule.name,
          Str(ResolveBatch(job.batch).micro_batches)};
}

/// The cells of the table that show the results.
std::vector<std::string> ResultCells(const Alternative& alternative) {
  if (!alternative.trouble.empty()) return {"-", "-", "-", "-", "-", "-"};
  const StepForecast& forecast = alternative.forecast;
  const int slowest = forecast.slowest_stage();
  return {CutsText(alternative.plan),
          Str(slowest, ": ", FormatSeconds(forecast.StageSeconds(slowest))),
          FormatShare(forecast.balance()),
          FormatShare(forecast.simulation.bubble),
          FormatBytes(static_cast<double>(forecast.peak_memory())),
          FormatSeconds(forecast.step())};
}

template <class Forecast>
Alternative Tried(Job job, const PlanOptions& options, Script* script,
                  const Forecast& forecast_of) {
  Alternative alternative{std::move(job), ""};
  try {
    alternative.plan = PlanJob(alternative.job, options, script);
    alternative.forecast = forecast_of(alternative.job, alternative.plan);
  } catch (const ConfigError& error) {
    alternative.trouble = error.what();
  }
  return alternative;
}

}  // namespace

double Alternative::SecondsPerSample() const {
  const auto samples = static_cast<double>(plan.batch.size * plan.topology.Size(kDataAxis));
  return forecast.step() / samples;
}

Alternative TryJob(Job job, const PlanOptions& options, const MachineRates& rates, Script* script) {
  return Tried(std::move(job), options, script, [&](const Job& planned, const Plan& plan) {
    return ForecastStep(planned, plan, rates, script);
  });
}

Alternative TryJobHere(Job job, const PlanOptions& options, Script* script) {
  return Tried(std::move(job), options, script, [&](const Job& planned, const Plan& plan) {
    return ForecastHere(planned, plan, script);
  });
}

Job WithCuts(Job job, const std::vector<int>& bounds) {
  job.partition = {"cuts", bounds, {}};
  return job;
}

std::string CompareText(const std::vector<Alternative>& alternatives) {
  TextTable table({"partition", "stages", "schedule", "micro-batches", "cuts", "slowest stage",
                   "balance", "bubble", "memory", "step"});
  std::string troubles;
  for (const Alternative& alternative : alternatives) {
    std::vector<std::string> cells = ChoiceCells(alternative);
    for (std::string& cell : ResultCells(alternative)) cells.push_back(std::move(cell));
    table.Add(std::move(cells));
    if (alternative.trouble.empty()) continue;
    troubles += Str("\n", Join(ChoiceCells(alternative), ", "), ": ", alternative.trouble);
  }
  std::string text = table.Render();
  const auto works = std::ranges::find_if(alternatives, [](auto& a) { return a.trouble.empty(); });
  if (works != alternatives.end()) text += Str("on ", works->forecast.rates.name);
  return text + troubles;
}

Value CompareValue(const std::vector<Alternative>& alternatives) {
  Value::List rows;
  for (const Alternative& alternative : alternatives) {
    const Job job = Chosen(alternative);
    Value row;
    row.Set("partition", MethodOf(job)).Set("pipe", std::max(job.parallel.pipe, 1));
    row.Set("schedule", job.schedule.name).Set("stages_per_rank", job.stages_per_rank);
    row.Set("micro_batches", ResolveBatch(job.batch).micro_batches);
    if (!alternative.trouble.empty()) {
      rows.push_back(row.Set("trouble", alternative.trouble));
      continue;
    }
    const StepForecast& forecast = alternative.forecast;
    const int slowest = forecast.slowest_stage();
    row.Set("bounds", CutNamesOf(alternative.plan).Numbers(alternative.plan.bounds));
    row.Set("slowest_stage", slowest).Set("slowest", forecast.StageSeconds(slowest));
    row.Set("balance", forecast.balance()).Set("bubble", forecast.simulation.bubble);
    row.Set("memory", forecast.peak_memory()).Set("step", forecast.step());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace strata
