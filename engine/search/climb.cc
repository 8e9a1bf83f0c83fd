#include "engine/search/climb.h"

#include <utility>

namespace strata {
namespace {

/// The places to which a bound may move: those beside it, or with `far` the others.
std::vector<int> Places(const std::vector<int>& bounds, size_t bound, bool far,
                        const ClimbRules& rules) {
  const int now = bounds[bound];
  std::vector<int> places;
  for (const int by : {-1, 1}) {
    const int end = by < 0 ? bounds[bound - 1] : bounds[bound + 1];
    if (now + by == end) continue;
    if (!far) {
      places.push_back(now + by);
      continue;
    }
    int place = now + by;
    if (rules.crossing) {
      while (place != end && rules.crossing(place) >= rules.crossing(now)) place += by;
    }
    if (place != end && place != now + by) places.push_back(place);
    if (now + 2 * by != end && place != now + 2 * by) places.push_back(now + 2 * by);
  }
  return places;
}

/// Tries the neighbours of all bounds once; true if one was taken.
bool Round(std::vector<int>& bounds, bool far, const ClimbRules& rules, const Effort& effort) {
  bool is_new = false;
  for (size_t b = 1; b + 1 < bounds.size(); ++b) {
    for (const int place : Places(bounds, b, far, rules)) {
      if (effort.is_used_up()) return false;
      std::vector<int> moved = bounds;
      moved[b] = place;
      if (!rules.attempt(moved)) continue;
      bounds = std::move(moved);
      is_new = true;
    }
  }
  return is_new;
}

}  // namespace

std::vector<int> Climb(std::vector<int> bounds, const ClimbRules& rules, const Effort& effort) {
  while (Round(bounds, /*far=*/false, rules, effort) ||
         Round(bounds, /*far=*/true, rules, effort)) {
  }
  return bounds;
}

}  // namespace strata
