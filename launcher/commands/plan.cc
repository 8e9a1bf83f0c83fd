// strata plan SCRIPT: what would run, without running it.
#include <unistd.h>

#include <cstdio>

#include "engine/base/error.h"
#include "launcher/command.h"
#include "launcher/pictures.h"
#include "launcher/plan_report.h"
#include "launcher/planner_report.h"
#include "launcher/process/fd.h"
#include "launcher/script_job.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {
namespace {

int Run(const Command& command, const std::vector<std::string>& arguments) {
  lua::State state;
  ScriptArguments script = ParseScriptArguments(command, arguments);
  const Job job = state.LoadJob(script.path, script.flags);
  const Value& own = script.flags.own();
  if (AsksPlanner(own)) {
    if (WantsPictures(own)) {
      throw ConfigError(
          "--svg and --html draw a plan of the job's own grid: leave out --auto and --simulate");
    }
    WriteAll(STDOUT_FILENO, PlannerReport(job, script.flags.job(), own, &state.script()),
             "standard output");
    return 0;
  }
  const Plan plan = PlanHere(job, script.flags.own(), state.script());
  const Forecast forecast = Predict(job, plan, &state.script());
  if (WantsPictures(script.flags.own())) {
    WritePictures(script.flags.own(), PictureOf(job, plan, forecast, &state.script()));
  }
  Terminal terminal;
  const std::string text = script.flags.own()["json"].as_bool()
                               ? PlanRecord(job, plan, forecast).ToJson(2) + "\n"
                               : PlanReport(job, plan, forecast, terminal.interactive());
  WriteAll(STDOUT_FILENO, text, "standard output");
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
      .flags = {NprocField(), ConfigField(),
                Field::Bool("json", "the plan for programs; its keys are stable").Default(false),
                SvgField(), HtmlField()},
      .takes_job = true,
      .run = &Run};
  const FieldTable planner = PlannerFields();
  command.flags.insert(command.flags.end(), planner.begin(), planner.end());
  return command;
}

}  // namespace strata::launcher
