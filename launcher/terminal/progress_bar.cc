// Draws a bar of # or of box-drawing characters.
#include "launcher/terminal/progress_bar.h"

#include <algorithm>
#include <cmath>

namespace strata::launcher {
namespace {

std::string Repeat(const char* piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

std::string ProgressBar(double share, int columns, bool unicode) {
  const int cells = unicode ? columns : columns - 2;
  // Without steps the share is 0 / 0, which is NaN. It is shown as complete.
  const double shown = std::isnan(share) ? 1 : std::clamp(share, 0.0, 1.0);
  const int full = static_cast<int>(shown * cells);
  if (unicode) return Repeat("━", full) + Repeat("─", cells - full);
  return "[" + Repeat("#", full) + Repeat("-", cells - full) + "]";
}

}  // namespace strata::launcher
