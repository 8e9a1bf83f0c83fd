// What the machine has of memory, and the container that the process may be in.
#pragma once

#include <cstdint>

namespace strata {

/// Memory with what is swapped, or what this process's control groups may have of it.
int64_t MostMemory();

/// Bytes that processes here may still take before something is swapped or killed; the largest
/// number where the system does not say.
int64_t AvailableMemory();

}  // namespace strata
