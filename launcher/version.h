// The version that `strata --version` shows.
#pragma once

namespace strata::launcher {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace strata::launcher
