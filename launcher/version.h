// The version that `strata --version` tells.
#pragma once

namespace strata::launcher {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace strata::launcher
