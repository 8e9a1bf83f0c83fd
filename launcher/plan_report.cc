#include "launcher/plan_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/summary.h"
#include "engine/plan/plan_text.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/gantt.h"
#include "engine/schedule/job_program.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/search.h"

namespace strata::launcher {
namespace {

std::string Percent(double share) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.1f%%", 100 * share);
  return buffer.data();
}

std::string MicroBatches(const Batch& batch) {
  return Str(Plural(batch.micro_batches, "micro-batch"), " of ", batch.micro_batch_size);
}

std::string Title(const Job& job, const Plan& plan) {
  const int replicas = plan.topology.Size(kDataAxis);
  return Str(job.name, ": ", Plural(static_cast<int64_t>(plan.layers.size()), "layer"), ", ",
             Plural(plan.parameters, "parameter"), ", batch ", plan.batch.size * replicas, " = ",
             replicas > 1 ? Str(replicas, " replicas x ") : "", MicroBatches(plan.batch));
}

std::string Grid(const Plan& plan) {
  const int ranks = plan.topology.world_size();
  return Str("pipe ", plan.topology.Size("pipe"), " x data ", plan.topology.Size("data"),
             " x model ", plan.topology.Size("model"), " = ", Plural(ranks, "rank"), " on ",
             plan.device, ", over ", plan.transport);
}

std::string ParametersPerLayer(const Plan& plan) {
  std::vector<int64_t> parameters;
  for (const LayerPlan& layer : plan.layers) parameters.push_back(layer.parameters);
  return Join(parameters, ",");
}

std::string ScheduleText(const Forecast& forecast, bool color) {
  const schedule::Simulation& simulation = forecast.simulation;
  schedule::GanttOptions options;
  options.color = color;
  return Str(
      "schedule ", forecast.step.program.name, ", predicted bubble ", Percent(simulation.bubble),
      " (no schedule has less than ", Percent(forecast.least_bubble), "; ",
      forecast.step.is_measured() ? "with measured costs"
                                  : "forward, input gradient and weight gradient take 1 each",
      ")\n", schedule::Gantt(forecast.step.program, simulation, options),
      "per rank: live activations ", Join(simulation.peak_activations, ", "), "; buffers ",
      Join(forecast.buffers, ", "), "\n");
}

template <class T>
Value ListOf(const std::vector<T>& elements) {
  return Value::List(elements.begin(), elements.end());
}

/// Of the best program with the same sizes and costs.
double LeastBubble(const schedule::Program& program, const schedule::Simulation& simulation,
                   const schedule::Costs& costs) {
  const int ranks = program.ranks(), stages = program.stages();
  if (stages % ranks != 0) return 0;
  const schedule::Sizes sizes = {ranks, stages / ranks, program.micro_batches};
  const double work = std::accumulate(simulation.busy.begin(), simulation.busy.end(), 0.0);
  const double bound = schedule::LowerBound(sizes, costs);
  return bound > 0 ? std::max(0.0, 1 - work / (ranks * bound)) : 0;
}

/// What "auto" would do with all the memory that it wants.
std::string MoreMemory(const Job& job, const Plan& plan, const Forecast& forecast) {
  if (job.schedule.name != "auto" || plan.memory == 0) return "";
  schedule::SearchOptions options = AutoOptions(job, plan);
  options.byte_limit = 0;
  options.stage_ranks = plan.stage_ranks();
  const schedule::SearchResult free = schedule::Search(
      {plan.pipe(), job.stages_per_rank, static_cast<int>(plan.batch.micro_batches)}, options);
  const double saved = forecast.simulation.bubble - free.simulation.bubble;
  if (saved < 0.001) return "";
  const int64_t bytes =
      LargestTotal(PredictMemory(job, plan, forecast.step.costs,
                                 schedule::AddRecomputation(free.program, RecomputedStages(plan))));
  return Str("with memory = ", FormatBytes(static_cast<double>(bytes)), " the bubble would be ",
             Percent(free.simulation.bubble), "\n");
}

}  // namespace

Forecast Predict(const Job& job, const Plan& plan, Script* script) {
  Forecast forecast;
  forecast.step = ForecastHere(job, plan, script);
  forecast.buffers = schedule::Buffers(
      schedule::LowerAndCheck(forecast.step.program, {.tied_stages = plan.tied_stages()}));
  const schedule::Costs seconds =
      forecast.step.is_measured() ? forecast.step.action_costs : schedule::Costs();
  forecast.simulation = schedule::Simulate(forecast.step.program, seconds);
  forecast.least_bubble = LeastBubble(forecast.step.program, forecast.simulation, seconds);
  forecast.cheaper = MoreMemory(job, plan, forecast);
  return forecast;
}

std::string PlanReport(const Job& job, const Plan& plan, const Forecast& forecast, bool color) {
  std::string text = Str(Title(job, plan), "\n", Grid(plan), "\n\n",
                         SummaryText(plan, forecast.step.costs), "\n", StagesText(plan), "\n");
  for (const std::string& notice : plan.notices) text += Str("note: ", notice, "\n");
  text +=
      Str("parameters per layer: ", ParametersPerLayer(plan), "\ncuts: ", Join(plan.bounds, ","),
          "\n\n", ScheduleText(forecast, color), forecast.cheaper, "\n",
          MemoryText(forecast.step.memory), "\n", ForecastText(forecast.step), "\n");
  return text;
}

Value PlanRecord(const Job& job, const Plan& plan, const Forecast& forecast) {
  const schedule::Simulation& simulation = forecast.simulation;
  const Value plan_value = PlanValue(plan);
  Value record = Value::MakeMap({{"name", job.name}});
  for (const auto& [key, value] : plan_value.as_map()) record.Set(key, value);
  record.Set("device", plan.device).Set("transport", plan.transport);
  record.Set("ranks", plan.topology.world_size());
  record.Set("schedule", Value::MakeMap({{"name", forecast.step.program.name},
                                         {"makespan", simulation.makespan},
                                         {"peak_activations", ListOf(simulation.peak_activations)},
                                         {"buffers", ListOf(forecast.buffers)}}));
  record.Set("bubble", simulation.bubble);
  record.Set("summary", SummaryValue(plan, forecast.step.costs));
  record.Set("forecast", ForecastValue(forecast.step));
  return record.Set("memory", MemoryValue(forecast.step.memory));
}

std::string PlanSummary(const Job& job, const Plan& plan, const Forecast& forecast) {
  std::string text = Str(Title(job, plan), "\n", Grid(plan), "; cuts ", Join(plan.bounds, ","),
                         "; schedule ", forecast.step.program.name);
  if (forecast.step.is_measured()) {
    text += Str("; predicted step ", FormatSeconds(forecast.step.step()));
  }
  for (const std::string& notice : plan.notices) text += Str("\nnote: ", notice);
  return text;
}

}  // namespace strata::launcher
