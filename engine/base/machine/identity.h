// Identifies this machine among others.
#pragma once

#include <string>

namespace strata {

/// This machine's name as gethostname() returns it. It is not unique: two machines may have the
/// same name, as containers often do.
std::string HostName();

/// The name of this machine's processor, as the kernel has it; "" if it has none.
std::string ProcessorName();

/// The random id that the kernel draws each time it boots; "" if the system has none.
std::string BootId();

}  // namespace strata
