// The command `strata run FILE`, which runs any Lua file with Strata's library.
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/command.h"
#include "launcher/prompt/interrupts.h"

namespace strata::launcher {
namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT
constexpr std::string_view kAllowRead = "--allow_read=";

int Run(const Command& command, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw ConfigError(Str("expected a Lua file: strata ", command.name, " ", command.usage));
  }
  lua::StateOptions options;
  for (const std::string& argument : arguments) {
    const bool allows = options.arguments.size() > 0 && argument.starts_with(kAllowRead);
    (allows ? options.allow_read : options.arguments)
        .push_back(allows ? argument.substr(kAllowRead.size()) : argument);
  }
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
      .details =
          "Flags set the options that the file declares with strata.options. The global table\n"
          "`arg` holds the file's name at 0 and, from 1 on, the arguments that are none of them;\n"
          "what is behind \"--\" is no flag. --allow_read=DIR, any number of times, lets the file "
          "read\n"
          "in DIR, too.",
      .run = &Run};
}

}  // namespace strata::launcher
