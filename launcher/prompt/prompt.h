// The prompt of `strata repl`: reads lines, runs them in a Lua state, and shows their results.
#pragma once

#include "launcher/terminal/line_source.h"
#include "launcher/terminal/terminal.h"
#include "lua/core/state.h"

namespace strata::launcher {

/// Runs the prompt until the lines end or a line is :quit, exit or quit. `:time EXPRESSION` shows
/// the time of the expression; `:time` alone turns this on or off for all later inputs. `:help X`
/// means `X?`. An incomplete line is continued by the next one; Ctrl-C drops it. Errors are shown
/// on standard error. Returns the number of inputs that ended in an error.
int RunPrompt(lua::State& state, LineSource& lines, Terminal& terminal);

}  // namespace strata::launcher
