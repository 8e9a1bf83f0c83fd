// The command `strata plan SCRIPT`, which shows how a job would run without running it.
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/forecast/decisions.h"
#include "engine/picture/plan_picture.h"
#include "launcher/command.h"
#include "launcher/commands/script_job.h"
#include "launcher/report/output_files.h"
#include "launcher/report/pictures.h"
#include "launcher/report/plan_report.h"
#include "launcher/report/planner_report.h"
#include "launcher/terminal/terminal.h"
#include "lua/host/measure.h"

namespace strata::launcher {
namespace {

/// Returns a Measure that also writes the result to the file, if one is given.
Measure Keeping(Measure measure, const Value& file) {
  if (file.is_null()) return measure;
  return [measure = std::move(measure), path = file.as_string()](const MeasureTask& task) {
    CheckWritable(path);
    const Profile profile = measure(task);
    WriteFile(path, ProfileValue(profile, task).ToJson(1) + "\n");
    return profile;
  };
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
  if (!own["write_costs"].is_null()) {
    if (script.flags.job().Has("costs")) {
      throw ConfigError("--write_costs writes what it measures: leave out --costs");
    }
    job.costs.clear();  // ignores the script's costs file, so that costs are measured again
    job = WithWholeLayers(std::move(job), "--write_costs");
  }
  Measure measure = Keeping(lua::MeasureHere(state, lua::MeasureIn::kChild), own["write_costs"]);
  const Plan plan =
      PlanHere(job, own, state.script(),
               {.measure = std::move(measure), .wants_seconds = !own["write_costs"].is_null()});
  const Forecast forecast = ForecastPlan(job, plan, &state.script());
  if (WantsPictures(own)) {
    WritePictures(own, picture::PlanPicture(job, plan, forecast.step));
  }
  Terminal terminal;
  const std::string text = own["json"].as_bool()
                               ? PlanRecord(job, plan, forecast).ToJson(2) + "\n"
                               : PlanReport(job, plan, forecast, terminal.colors());
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
      .flags = {NprocField(), ConfigField(), ScriptTimeoutField(), AllowReadField(),
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
