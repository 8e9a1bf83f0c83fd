#include "engine/plan/cut/all_cuts.h"

#include <algorithm>
#include <numeric>

namespace strata::partition {

double CountCuts(int layers, int stages, double most) {
  const int chosen = std::min(stages - 1, layers - stages);
  double count = 1;
  for (int k = 1; k <= chosen && count < most; ++k) count = count * (layers - k) / k;
  return std::min(count, most);
}

void ForEachCut(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> bounds(static_cast<size_t>(stages) + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  bounds.back() = layers;
  while (true) {
    visit(bounds);
    // Moves the last bound that can move on, and puts the bounds after it as early as possible.
    int moved = stages - 1;
    while (moved > 0 && bounds[moved] == layers - (stages - moved)) --moved;
    if (moved <= 0) return;
    int place = ++bounds[moved];
    for (int k = moved + 1; k < stages; ++k) bounds[k] = ++place;
  }
}

}  // namespace strata::partition
