#include "launcher/terminal/progress.h"

#include <algorithm>

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
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * cells);
  if (unicode) return Repeat("━", full) + Repeat("─", cells - full);
  return "[" + Repeat("#", full) + Repeat("-", cells - full) + "]";
}

}  // namespace strata::launcher
