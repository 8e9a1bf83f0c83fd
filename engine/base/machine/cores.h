// How many cores this process may use.
#pragma once

#include <limits>
#include <string>

namespace strata {

/// At least one: as many as the machine has, the process may run on, and the processor time of its
/// control groups (containers) is worth. The same number at each call.
int MachineCores();

/// What the control groups let the process have, in whole cores, rounded up. `root`: of the file
/// system, for tests.
inline constexpr int kNoCoreLimit = std::numeric_limits<int>::max();
int CoreLimit(const std::string& root = "");

}  // namespace strata
