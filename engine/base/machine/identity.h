// Identifies this machine among others.
#pragma once

#include <string>

namespace strata {

/// This machine's name as gethostname() returns it. It is not unique: two machines may have the
/// same name, as containers often do.
std::string HostName();

/// The random id that the kernel draws each time it boots; "" if the system has none.
std::string BootId();

}  // namespace strata
