// strata run FILE: any Lua file with the library.
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/command.h"
#include "launcher/interrupts.h"

namespace strata::launcher {
namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT

int Run(const Command& command, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw ConfigError(Str("expected a Lua file: strata ", command.name, " ", command.usage));
  }
  lua::StateOptions options;
  options.arguments = arguments;
  options.seconds = 0;
  lua::State state(options);
  Interrupts interrupts(state);
  try {
    state.RunFile(arguments[0]);
  } catch (const Error&) {
    if (!interrupts.Take()) throw;
    std::fputs("strata: interrupted\n", stderr);
    return kInterrupted;
  }
  return 0;
}

}  // namespace

Command RunCommand() {
  return {
      .name = "run",
      .usage = "FILE [arguments]",
      .summary = "runs a Lua file with the library",
      .details = "The global table `arg` holds the file's name at 0 and its arguments from 1 on.",
      .run = &Run};
}

}  // namespace strata::launcher
