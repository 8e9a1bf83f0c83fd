// What tells this machine from others.
#pragma once

#include <string>

namespace strata {

/// This machine's name, as gethostname() has it. Two machines may have the same, as containers do.
std::string HostName();

/// The kernel's random name for the time since it was started; "" where it has none.
std::string BootId();

}  // namespace strata
