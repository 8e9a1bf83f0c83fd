// Bottleneck: the cut whose heaviest part is the least. Dynamic programming over the prefixes.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace strata::partition {

struct Bottleneck {
  std::vector<int> bounds;  ///< parts + 1
  double cost = 0;          ///< of the heaviest part
};

/// The cost of a part that it may not be.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// The cut without an empty part whose heaviest part costs the least, exactly; nothing when none is
/// allowed. Of equals the one whose bounds are the latest, compared from the last. Takes at most
/// parts * items^2 / 2 steps. `cost(part, begin, end, below)`: of a part, or anything from `below`
/// on when it is that or more. `at_least(begin, end)`: what every part costs that ends there and
/// begins there or before. REQUIRES: 1 <= parts <= items; no cost is negative.
template <class Cost, class AtLeast>
std::optional<Bottleneck> LeastBottleneck(int items, int parts, const Cost& cost,
                                          const AtLeast& at_least) {
  // costs[end]: the least of the first items, up to `end`, in the parts so far.
  std::vector<double> costs(static_cast<size_t>(items) + 1, kNever), next;
  costs[0] = 0;
  std::vector<std::vector<int>> begins(static_cast<size_t>(parts));
  for (int part = 0; part < parts; ++part) {
    next.assign(costs.size(), kNever);
    std::vector<int>& chosen = begins[part];
    chosen.assign(costs.size(), -1);
    const int last = items - (parts - 1 - part);
    for (int end = part + 1 == parts ? items : part + 1; end <= last; ++end) {
      double& best = next[end];
      for (int begin = part == 0 ? 0 : end - 1; begin >= part; --begin) {
        if (at_least(begin, end) > best) break;
        const double before = costs[begin];
        if (before >= best) continue;
        const double now = std::max(before, cost(part, begin, end, best));
        if (now >= best) continue;
        best = now;
        chosen[end] = begin;
      }
    }
    costs.swap(next);
  }
  if (costs.back() == kNever) return std::nullopt;
  Bottleneck best{std::vector<int>(static_cast<size_t>(parts) + 1, items), costs.back()};
  for (auto part = static_cast<size_t>(parts); part-- > 0;) {
    best.bounds[part] = begins[part][best.bounds[part + 1]];
  }
  return best;
}

}  // namespace strata::partition
