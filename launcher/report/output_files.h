// Checks that the output files that a command's flags name contain nothing else.
#pragma once

#include "engine/base/value.h"

namespace strata::launcher {

/// Call before any work. Throws ConfigError if a flag for an output, such as --csv, names a file
/// that contains anything but an earlier run's output for that flag, and if two flags name one
/// file. `flags`: texts by the names of their flags; other entries are ignored.
void CheckOutputs(const Value& flags);

}  // namespace strata::launcher
