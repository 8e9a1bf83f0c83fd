// The command `strata worker`, which runs the ranks of this machine for a `strata train --hostfile`
// on another machine.
#include "launcher/process/worker.h"

#include "engine/base/error.h"
#include "launcher/command.h"
#include "launcher/commands/links_job.h"
#include "launcher/commands/training_job.h"
#include "launcher/place/remote.h"

namespace strata::launcher {
namespace {

int Run(const Command&, const std::vector<std::string>& arguments) {
  if (!arguments.empty()) throw ConfigError("strata worker takes nothing but its standard input");
  static const Command train = TrainCommand();
  return RunWorker([](const Value& job, int& store_port) -> std::unique_ptr<JobProgram> {
    Placement placement = ApplyRemoteJob(job, store_port);
    const std::string transport = TransportOfLinksJob(job);
    if (!transport.empty()) return std::make_unique<LinksJob>(std::move(placement), transport);
    return std::make_unique<TrainingJob>(train, ArgumentsOf(job), std::move(placement));
  });
}

}  // namespace

Command WorkerCommand() {
  return {.name = "worker",
          .usage = "",
          .summary = "what strata train --hostfile, or doctor --links, starts on each machine",
          .details =
              "Gets its job as a line of JSON on standard input, runs the ranks of this machine,\n"
              "and ends all of them when its input ends.",
          .run = &Run};
}

}  // namespace strata::launcher
