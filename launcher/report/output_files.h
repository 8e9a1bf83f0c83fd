// Output files: what the flags of a command name for its output holds nothing else.
#pragma once

#include "engine/base/value.h"

namespace strata::launcher {

/// To be called before any work. Throws ConfigError where a flag for an output, such as --csv,
/// names a file with something else than an earlier run's output for that flag, and where two of
/// them name one file. `flags`: texts by their flags' names; there may be others.
void CheckOutputs(const Value& flags);

}  // namespace strata::launcher
