// The command `strata plan SCRIPT`, which shows how a job would run without running it.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/forecast/decisions.h"
#include "engine/picture/plan_picture.h"
#include "engine/search/plan_job.h"
#include "launcher/command.h"
#include "launcher/commands/script_job.h"
#include "launcher/report/fit_report.h"
#include "launcher/report/output_files.h"
#include "launcher/report/pictures.h"
#include "launcher/report/plan_report.h"
#include "launcher/report/planner_report.h"
#include "launcher/terminal/terminal.h"
#include "lua/host/measure.h"

namespace strata::launcher {
namespace {

/// Returns a Measure that also writes a result with all layers to the file, if one is given.
Measure Keeping(Measure measure, const Value& file) {
  if (file.is_null()) return measure;
  return [measure = std::move(measure), path = file.as_string()](const MeasureTask& task) {
    CheckWritable(path);
    const Profile profile = measure(task);
    const bool has_all = !profile.layers.empty() && profile.is_whole;
    if (has_all) WriteFile(path, ProfileValue(profile, task).ToJson(1) + "\n");
    return profile;
  };
}

/// Refuses a plan for GPUs on a machine without one. The command that simulates the job on a
/// cluster is probably what is meant, so the message has it.
void CheckHasGpu(const Job& job, const std::vector<std::string>& arguments) {
  if (job.device != "cuda" || GpuCount() > 0) return;
  std::string again = "strata plan";
  for (const std::string& argument : arguments) {
    const bool is_of_here =
        std::ranges::any_of(std::array{"--device", "--nproc", "--write_costs", "--svg", "--html"},
                            [&](std::string_view flag) { return argument.starts_with(flag); });
    if (!is_of_here) again += " " + argument;
  }
  const Parallel& degrees = job.parallel;
  const bool has_degrees = std::max({degrees.pipe, degrees.data, degrees.model}) > 1;
  throw ConfigError(
      Str("device = \"cuda\", but this machine has no GPU (or CUDA_VISIBLE_DEVICES "
          "hides it); to plan for a cluster that has some, say\n  ",
          again, " --simulate --cluster=8xH100", has_degrees ? "" : " --gpus=64"));
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  ScriptArguments script = ParseScriptArguments(command, arguments);
  CheckOutputs(script.flags.own());
  lua::State state(StateOptionsOf(script.flags.own()));
  Job job = state.LoadJob(script.path, script.flags);
  const Value& own = script.flags.own();
  if (AsksPlanner(own, script.flags.job())) {
    if (WantsPictures(own)) {
      throw ConfigError(
          "--svg and --html draw a plan of the job's own grid: leave out --auto and --simulate");
    }
    Print(PlannerReport(job, script.flags.job(), own, &state.script()));
    return 0;
  }
  CheckHasGpu(job, arguments);
  if (!own["write_costs"].is_null()) {
    if (script.flags.job().Has("costs")) {
      throw ConfigError("--write_costs writes what it measures: leave out --costs");
    }
    job.costs.clear();  // ignores the script's costs file, so that costs are measured again
    job = WithWholeLayers(std::move(job), "--write_costs");
  }
  Measure measure = Keeping(lua::MeasureHere(state, lua::MeasureIn::kChild), own["write_costs"]);
  const PlanOptions options = OptionsHere(
      own, {.measure = std::move(measure), .wants_seconds = !own["write_costs"].is_null()});
  PlanOptions tries = options;
  tries.measure = lua::MeasureHere(state, lua::MeasureIn::kChild);  // writes no file
  const FitReport fits(job, std::move(tries), &state.script());
  Plan plan = fits.Planned([&] { return PlanJob(job, options, &state.script()); });
  fits.AddNotices(plan);
  const Forecast forecast = ForecastPlan(job, plan, &state.script());
  if (WantsPictures(own)) {
    WritePictures(own, picture::PlanPicture(job, plan, forecast.step));
  }
  Terminal terminal;
  const std::string text = own["json"].as_bool()
                               ? PlanRecord(job, plan, forecast).ToJson(2) + "\n"
                               : fits.TooLargeText(plan, forecast.step) +
                                     PlanReport(job, plan, forecast, terminal.colors());
  Print(text);
  return 0;
}

}  // namespace

Command PlanCommand() {
  Command command = {
      .name = "plan",
      .usage = "SCRIPT [--flags]",
      .summary = "shows layers, cuts, grid and schedule, without training",
      .details =
          "Shows every layer with its parameters and output, where the list is cut, which\n"
          "rank runs what, the schedule's picture and its predicted bubble.\n"
          "--auto searches the best way to train on a cluster (--gpus=64 --memory=80GB),\n"
          "--simulate shows this plan's step there, with slow ranks and links if asked.",
      .flags = {NprocField(),
                HostfileField("the hosts of train --hostfile, to plan for their ranks"),
                ConfigField(), ScriptTimeoutField(), AllowReadField(),
                Field::String("write_costs",
                              "a file for what the layers take (partition = \"time\"), for --costs")
                    .Optional(),
                Field::Bool("json", "the plan for programs; its keys are stable").Default(false),
                SvgField(), HtmlField()},
      .takes_job = true,
      .run = &Run};
  for (const Field& field : PlannerFields()) command.flags.push_back(field);
  return command;
}

}  // namespace strata::launcher
