// The strata binary. It is not linked with LibTorch; commands load the engine when they need it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

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

/// What is closed would be the number of a file or a channel of ours, and get what is shown.
void OpenClosedStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // has the lowest number, this one
  }
}

}  // namespace
}  // namespace strata::launcher

int main(int argc, char** argv) {
  strata::launcher::OpenClosedStandardDescriptors();
  ::signal(SIGXFSZ, SIG_IGN);  // beyond the limit of a file's size, write() fails instead
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int code = strata::launcher::Main(strata::launcher::Commands(), arguments);
  if (const strata::lua::EngineApi* engine = strata::lua::LoadedEngine()) engine->Quit(code);
  return code;
}
