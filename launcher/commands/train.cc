// The command `strata train SCRIPT`, which trains a job and shows its progress.
#include <signal.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/job/job.h"
#include "launcher/command.h"
#include "launcher/commands/script_job.h"
#include "launcher/commands/training_job.h"
#include "launcher/place/placement.h"
#include "launcher/place/remote.h"
#include "launcher/process/restarts.h"
#include "launcher/process/supervisor.h"
#include "launcher/report/flight_file.h"
#include "launcher/report/output_files.h"
#include "launcher/report/pictures.h"
#include "launcher/report/rank_logs.h"
#include "launcher/report/step_files.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

constexpr const char* kRestartWindow = "1h";

std::string TextOf(const Value& value) { return value.is_null() ? "" : value.as_string(); }

/// The host name of each rank.
std::vector<std::string> HostNames(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.insert(names.end(), host.slots.size(), host.name);
  return names;
}

/// Trains on the machines of the placement; `listener` receives the messages and the output.
Outcome TrainOn(const Placement& placement, const Command& command,
                const std::vector<std::string>& arguments, const Value& own, JobListener& listener,
                const SupervisorOptions& options) {
  if (placement.hosts.empty()) {
    TrainingJob job(command, arguments, placement);
    return Supervise(job, listener, options);
  }
  return Supervise(RemoteHosts(placement, arguments, own, ProcessEnvironment()),
                   placement.first.store_port, listener, options);
}

/// Adds --resume=SAVE to the arguments. Returns them unchanged if this training has saved nothing;
/// they may still name the save or the weights it started from.
std::vector<std::string> WithResume(std::vector<std::string> arguments, const TrainReport& report) {
  const std::string save = report.saves().Resume();
  if (save.empty()) return arguments;
  std::vector<std::string> flags = {"--resume=" + save};
  if (report.takes_weights()) flags.push_back("--weights=none");
  return WithFlags(std::move(arguments), flags);
}

/// Describes, for the log, from where a restarted job continues.
std::string RestartSource(const NewSaves& saves) {
  const std::string save = saves.Resume();
  if (save == kLatestSave) return "from the last save";
  if (!save.empty()) return "from the best save: there is no other yet";
  return saves.can_be() ? "as it began: nothing was saved since"
                        : "from the beginning: there are no saves (--save.dir)";
}

/// The limits of --max_restarts and --restart_window.
Restarts RestartsOf(const Value& own, const Placement& placement) {
  const int most = static_cast<int>(own["max_restarts"].as_int());
  if (most > 0 && placement.is_part()) {
    throw ConfigError(Str("--max_restarts: ", placement.launcher, " starts the ranks of this job, ",
                          "so it alone can start all of them again"));
  }
  const std::string& text = own["restart_window"].as_string();
  const std::optional<double> window = ParseDuration(text);
  if (most == 0 && text != kRestartWindow) {
    throw ConfigError(Str("--restart_window=", text,
                          " counts restarts, but there are none: give --max_restarts=N as well"));
  }
  if (!window || *window == 0) {
    throw ConfigError(Str("--restart_window=", text, ": expected a time, such as 90s, 15m or 1h"));
  }
  return Restarts(most, *window);
}

/// Trains, and starts again after the loss of a rank or a machine, up to --max_restarts times.
Outcome TrainWithRestarts(const Placement& placement, const Command& command,
                          const std::vector<std::string>& arguments, const Value& own,
                          TrainReport& report, Terminal& terminal) {
  StepFiles files(report, own);
  RankLogs logs(files, TextOf(own["log_dir"]), /*is_alone=*/!placement.is_part());
  Restarts restarts = RestartsOf(own, placement);
  SupervisorOptions options = SupervisorOptionsOf(own, terminal.output());
  options.keep_record = [&](const Value& record, bool wanted) -> std::string {
    const std::string log_dir = TextOf(own["log_dir"]);
    const std::string& folder = log_dir.empty() ? report.folder() : log_dir;
    return folder.empty() && !wanted ? "" : WriteFlightFile(record, folder);
  };
  while (true) {
    const Outcome outcome =
        TrainOn(placement, command, WithResume(arguments, report), own, logs, options);
    if (!restarts.Again(outcome, report.furthest(), MonotonicSeconds())) return restarts.outcome();
    terminal.ClearStatus();
    const double pause = restarts.Pause();
    terminal.ErrorLine(Str("strata: ", outcome.cause, "\nstrata: ", restarts.Count(), ", ",
                           RestartSource(report.saves()),
                           pause > 0 ? ", in " + FormatSeconds(pause) : ""));
    // No job runs during the pause, so a signal simply ends this process.
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

/// The log's word for an end with this exit code.
const char* EndOf(int exit_code) {
  if (exit_code == 0) return "done";
  constexpr int kSignalled = 128;
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    if (exit_code == kSignalled + signal) return "stopped";
  }
  return "failed";
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Value own = ParseScriptArguments(command, arguments).flags.own();
  CheckOutputs(own);  // outputs that the job names are checked by rank 0's starter
  if (own["verbose"].as_bool()) InitLogging(LogLevel::kInfo, "");
  // Before the ranks start and between restarts these signals are ignored; Supervise() handles them
  // in any case.
  for (const int signal : {SIGUSR1, SIGQUIT}) ::signal(signal, SIG_IGN);
  const Placement placement = PlacementHere(own);
  Terminal terminal;
  TrainReport report(terminal, own["print_every"].as_int());
  if (placement.is_part()) report.set_ranks(placement.world_size);
  report.set_hosts(HostNames(placement.hosts));
  const Outcome outcome = TrainWithRestarts(placement, command, arguments, own, report, terminal);
  report.OnEnd(EndOf(outcome.exit_code));
  return Shown(terminal, outcome);
}

FieldTable TrainFlags() {
  FieldTable fields = PlacementFields();
  for (Field& field : RemoteFields()) fields.push_back(std::move(field));
  fields.push_back(ConfigField());
  fields.push_back(ScriptTimeoutField());
  fields.push_back(AllowReadField());
  fields.push_back(PrepareTimeoutField());
  fields.push_back(Field::Int("max_restarts",
                              "how often all ranks are started again, from the last save, after "
                              "one was lost or hung")
                       .AtLeast(0)
                       .Default(0));
  fields.push_back(Field::String("restart_window", "within which so many restarts may be: 90s, 1h")
                       .Default(kRestartWindow));
  fields.push_back(Field::Int("print_every", "steps between two lines; 0 = about fifty lines")
                       .AtLeast(0)
                       .Default(0));
  fields.push_back(
      Field::String("log_dir", "a folder for what each rank writes: rank_0.log ...").Optional());
  for (Field& field : StepFileFields()) fields.push_back(std::move(field));
  fields.push_back(Field::Bool("verbose", "shows the engine's own log").Default(false));
  fields.push_back(SvgField());
  fields.push_back(HtmlField());
  return fields;
}

}  // namespace

Command TrainCommand() {
  return {.name = "train",
          .usage = "SCRIPT [--flags]",
          .summary = "trains the model that a script describes",
          .details =
              "Starts the ranks on this machine (as many as --nproc says, or the product of the\n"
              "degrees), trains, and evaluates the test data at the end. Ctrl-C ends everything;\n"
              "SIGTERM too, after a save of the step that runs where the job has --save.dir\n"
              "(exit code 143). --max_restarts=N starts all ranks again when one was lost.\n"
              "Started by torchrun, mpirun, srun or the like, each process is one rank. With\n"
              "--hostfile, a `strata worker` is started on each machine over ssh.\n"
              "--trace=F records when every action ran; --html=F and --svg=F then show that\n"
              "beside what was predicted.",
          .flags = TrainFlags(),
          .takes_job = true,
          .run = &Run};
}

}  // namespace strata::launcher
