// The prompt: reads lines, runs them in a state, shows what they give.
#pragma once

#include "launcher/terminal/line_source.h"
#include "launcher/terminal/terminal.h"
#include "lua/state.h"

namespace strata::launcher {

/// Until the lines end, or one says :quit (exit, quit). `:time EXPRESSION` shows the time that it
/// took, `:time` alone does so for every input from then on; `:help X` is `X?`. A line that is the
/// beginning of something longer is continued by the next; Ctrl-C forgets it. Returns how many
/// inputs ended in an error (shown on standard error).
int RunPrompt(lua::State& state, LineSource& lines, Terminal& terminal);

}  // namespace strata::launcher
