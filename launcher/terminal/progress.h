// A bar that shows how much of something is done.
#pragma once

#include <string>

namespace strata::launcher {

/// `columns` characters for a share between 0 and 1: "[####----]", or "━━━━────" with `unicode`.
std::string ProgressBar(double share, int columns, bool unicode);

}  // namespace strata::launcher
