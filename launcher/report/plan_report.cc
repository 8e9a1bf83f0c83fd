// The report of a plan, put together from the tables of the engine.
#include "launcher/report/plan_report.h"

#include <algorithm>
#include <utility>

#include "engine/base/text.h"
#include "engine/forecast/check_cost.h"
#include "engine/forecast/decisions.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/summary.h"
#include "engine/plan/language_model.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/gantt.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"

namespace strata::launcher {
namespace {

std::string MicroBatches(const Batch& batch) {
  return Str(Plural(batch.micro_batches, "micro-batch"), " of ", batch.micro_batch_size);
}

std::string Title(const Job& job, const Plan& plan) {
  const int replicas = plan.topology.Size(kDataAxis);
  return Str(job.name, ": ", Plural(CutNamesOf(plan).layers(), "layer"), ", ",
             Plural(plan.parameters, "parameter"), ", batch ", plan.batch.size * replicas, " = ",
             replicas > 1 ? Str(replicas, " replicas x ") : "", MicroBatches(plan.batch));
}

std::string Grid(const Plan& plan) {
  return Str(GridText(DecisionsOf(plan)), " = ", Plural(plan.topology.world_size(), "rank"), " on ",
             plan.device, ", over ", plan.transport);
}

std::string ParametersPerLayer(const Plan& plan) {
  std::vector<int64_t> parameters;
  for (const LayerPlan& layer : ShownLayers(plan)) parameters.push_back(layer.parameters);
  return Join(parameters, ",");
}

std::string ScheduleText(const Forecast& forecast, bool color) {
  const schedule::Simulation& simulation = forecast.outlook.simulation;
  schedule::GanttOptions options;
  options.color = color;
  options.in_seconds = !forecast.outlook.costs.empty();
  return Str(BubbleText(forecast.outlook),
             schedule::Gantt(forecast.step.program, simulation, options),
             schedule::GanttLegend(forecast.step.program), "per rank: live activations ",
             Join(simulation.peak_activations, ", "), "; buffers ", Join(forecast.buffers, ", "),
             "\n", MoreMemoryText(forecast.outlook));
}

/// The memory that a language model needs for the keys and values of a text that it writes.
std::string TextsText(const Job& job, const Plan& plan) {
  const int64_t bytes = IsLanguageModel(plan) ? std::ranges::max(KeptTokenBytes(job, plan)) : 0;
  if (bytes == 0) return "";
  const int64_t length = plan.stages.front().input.front().shape.at(1);
  return Str("a text that strata generate writes takes ", ShowBytes(bytes),
             " of keys and values a token on the fullest rank, ", ShowBytes(bytes * length),
             " for ", Plural(length, "token"), "\n");
}

/// The memory of the copy that a save makes, which the memory table does not include. Saves for
/// which the training waits need no copy.
std::string SavesText(const Job& job, const Plan& plan, const StepForecast& step) {
  if (job.save.dir.empty() || job.save.every == 0) return "";
  return Str("a save beside the training takes a copy of weights and optimizer, up to ",
             ShowBytes(SaveCopyBytes(plan, step)),
             " more on a rank; without room for it the training waits\n");
}

template <class T>
Value ListOf(const std::vector<T>& elements) {
  return Value::List(elements.begin(), elements.end());
}

std::vector<std::string> NoticesOf(const Plan& plan, const Forecast& forecast) {
  std::vector<std::string> notices = plan.notices;
  notices.insert(notices.end(), forecast.notices.begin(), forecast.notices.end());
  return notices;
}

/// The line about checked steps, after a line break; "" if no step is checked.
std::string ChecksText(const Job& job, const Plan& plan, const Forecast& forecast) {
  if (!IsChecked(job, plan)) return "";
  const CheckCost cost = ForecastCheck(job, plan, forecast.step);
  const std::string text = Str("\ncheck: ", CheckText(cost));
  if (job.hang_timeout == 0 || cost.seconds < job.hang_timeout) return text;
  return Str(text, "\nnote: hang_timeout = ", FormatSeconds(job.hang_timeout),
             " is shorter than that: a checked step would end the job as a hang does");
}

}  // namespace

Forecast ForecastPlan(const Job& job, const Plan& plan, Script* script) {
  Forecast forecast;
  forecast.step = ForecastHere(job, plan, script);
  forecast.buffers = schedule::Buffers(
      schedule::LowerAndCheck(forecast.step.program, {.tied_stages = plan.tied_stages()}));
  forecast.outlook = LookOut(job, plan, forecast.step);
  if (script != nullptr) forecast.notices = script->TakeNotes();
  return forecast;
}

std::string PlanReport(const Job& job, const Plan& plan, const Forecast& forecast, bool color) {
  std::string text = Str(Title(job, plan), "\n", Grid(plan), "\n\n",
                         SummaryText(plan, forecast.step.costs), "\n", StagesText(plan), "\n");
  for (const std::string& notice : NoticesOf(plan, forecast)) text += Str("note: ", notice, "\n");
  text += Str("parameters per layer: ", ParametersPerLayer(plan), "\ncuts: ", CutsText(plan),
              "\n\n", ScheduleText(forecast, color), "\n", MemoryText(forecast.step.memory),
              SavesText(job, plan, forecast.step), TextsText(job, plan), "\n",
              ForecastText(forecast.step), ChecksText(job, plan, forecast), "\n");
  return text;
}

Value PlanRecord(const Job& job, const Plan& plan, const Forecast& forecast) {
  const schedule::Simulation& simulation = forecast.outlook.simulation;
  const Value plan_value = PlanValue(plan);
  Value record = Value::MakeMap({{"version", kPlanRecordVersion}, {"name", job.name}});
  for (const auto& [key, value] : plan_value.as_map()) record.Set(key, value);
  record.Set("device", plan.device).Set("transport", plan.transport);
  record.Set("ranks", plan.topology.world_size());
  Value schedule = Value::MakeMap({{"name", forecast.step.program.name},
                                   {"makespan", simulation.makespan},
                                   {"peak_activations", ListOf(simulation.peak_activations)},
                                   {"buffers", ListOf(forecast.buffers)}});
  const Value outlook = OutlookValue(forecast.outlook);
  for (const auto& [key, value] : outlook.as_map()) {
    if (key != "bubble") schedule.Set(key, value);
  }
  record.Set("schedule", std::move(schedule));
  record.Set("bubble", simulation.bubble);
  record.Set("summary", SummaryValue(plan, forecast.step.costs));
  record.Set("forecast", ForecastValue(forecast.step));
  if (IsChecked(job, plan)) {
    const CheckCost check = ForecastCheck(job, plan, forecast.step);
    record.Set("check",
               Value::MakeMap(
                   {{"seconds", check.seconds}, {"every", check.every}, {"share", check.share}}));
  }
  if (IsLanguageModel(plan)) record.Set("kept_token_bytes", ListOf(KeptTokenBytes(job, plan)));
  return record.Set("memory", MemoryValue(forecast.step.memory));
}

std::string PlanSummary(const Job& job, const Plan& plan, const Forecast& forecast) {
  std::string text = Str(Title(job, plan), "\n", Grid(plan), "; cuts ", CutsText(plan),
                         "; schedule ", forecast.step.program.name);
  if (forecast.step.is_measured()) {
    text += Str("; predicted step ", FormatSeconds(forecast.step.step()));
  }
  text += ChecksText(job, plan, forecast);
  for (const std::string& notice : NoticesOf(plan, forecast)) text += Str("\nnote: ", notice);
  return text;
}

}  // namespace strata::launcher
