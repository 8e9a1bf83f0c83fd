// The command `strata repl [SCRIPT]`, an interactive Lua prompt.
#include <unistd.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/command.h"
#include "launcher/commands/script_job.h"
#include "launcher/prompt/interrupts.h"
#include "launcher/prompt/prompt.h"
#include "launcher/version.h"

namespace strata::launcher {
namespace {

/// Edited lines if standard input and output are terminals, else piped lines.
std::unique_ptr<LineSource> MakeLineSource(lua::State& state, const Terminal& terminal) {
  if (::isatty(STDIN_FILENO) != 1 || !terminal.interactive()) {
    return std::make_unique<PipedLines>();
  }
  auto complete = [&state](std::string_view line) {
    lua::Completion completion = state.Complete(line);
    return Candidates{completion.start, std::move(completion.candidates)};
  };
  return std::make_unique<EditedLines>(HistoryPath(), complete, InterruptFd());
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  Terminal terminal;
  lua::StateOptions options;
  options.seconds = 0;
  lua::State state(options);
  const bool has_script = !arguments.empty();
  if (has_script) {
    ScriptArguments script = ParseScriptArguments(command, arguments);
    state.LoadJob(script.path, script.flags);
  }
  const std::unique_ptr<LineSource> lines = MakeLineSource(state, terminal);
  const bool edits = dynamic_cast<EditedLines*>(lines.get()) != nullptr;
  if (edits) {
    terminal.Line(Str("Strata ", kVersion, ", Lua with strata, nn and F",
                      has_script ? " and the script's job" : "",
                      ".\nhelp(x) and x? explain, Tab completes, Ctrl-D leaves."));
  }
  const int errors = RunPrompt(state, *lines, terminal);
  return edits || errors == 0 ? 0 : 1;
}

}  // namespace

Command ReplCommand() {
  return {
      .name = "repl",
      .usage = "[SCRIPT [--flags]]",
      .summary = "a Lua prompt with the library and, with a script, its job",
      .details =
          "`strata`, `nn` and `F` are there, and with a script `job`. Expressions show their\n"
          "values, `;` silences them, `_` is the last one; help(x) and x? explain; :time X takes\n"
          "the time; an input may take several lines; Ctrl-C returns to the prompt. Lines from a\n"
          "pipe run without a prompt.",
      .takes_job = true,
      .run = &Run};
}

}  // namespace strata::launcher
