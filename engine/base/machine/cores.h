// The number of cores that this process may use.
#pragma once

#include <limits>
#include <string>

namespace strata {

/// The smallest of the number of cores of the machine, of those that the process may run on (its
/// affinity), and of CoreLimit(); at least 1. It is determined once, so every call returns the same
/// number.
int MachineCores();

/// The processor time that the control groups (containers) allow, in whole cores, rounded up;
/// kNoCoreLimit if they set no limit. `root` is put in front of system paths, for tests.
inline constexpr int kNoCoreLimit = std::numeric_limits<int>::max();
int CoreLimit(const std::string& root = "");

}  // namespace strata
