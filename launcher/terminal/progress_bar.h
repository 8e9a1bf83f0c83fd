// ProgressBar(): a bar of characters that shows how much of something is done.
#pragma once

#include <string>

namespace strata::launcher {

/// A bar of `columns` characters for a share from 0 to 1: "[####----]", or "━━━━────" with
/// `unicode`.
std::string ProgressBar(double share, int columns, bool unicode);

}  // namespace strata::launcher
