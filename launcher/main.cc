// The strata binary. It is not linked with LibTorch; commands load the engine when they need it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/progress_line.h"
#include "launcher/command.h"
#include "lua/host/engine_api.h"

namespace strata::launcher {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      TrainCommand(), PlanCommand(),     ReplCommand(),       VerifyCommand(),
      RunCommand(),   DoctorCommand(),   InspectCommand(),    PredictCommand(),
      EvalCommand(),  GenerateCommand(), ImportCommand(),     ExportCommand(),
      NewCommand(),   TypesCommand(),    CompletionCommand(), WorkerCommand()};
  return commands;
}

namespace {

/// Opens standard descriptors that are closed. Otherwise a file or a channel would get such a
/// number, and output would be written into it.
void OpenClosedStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() returns the lowest free number, which is `fd`.
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

}  // namespace
}  // namespace strata::launcher

int main(int argc, char** argv) {
  strata::launcher::OpenClosedStandardDescriptors();
  // Processes that are forked for ranks send these lines to the launcher instead (rank_job.cc).
  strata::SetProgressOutput(
      {.say = [](const std::string& line) { std::fprintf(stderr, "strata: %s\n", line.c_str()); }});
  ::signal(SIGXFSZ, SIG_IGN);  // at the limit of a file's size write() fails instead
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int code = strata::launcher::Main(strata::launcher::Commands(), arguments);
  if (const strata::lua::EngineApi* engine = strata::lua::LoadedEngine()) engine->Quit(code);
  return code;
}
