#include "engine/runtime/step/news_route.h"

#include <cstddef>
#include <set>

namespace strata {

NewsRoute RouteOf(int rank, const Plan& plan, const std::vector<int>& pipe_ranks) {
  std::vector<int> hops;
  for (const StagePlan& stage : plan.stages) hops.push_back(pipe_ranks.at(stage.rank));
  NewsRoute route;
  std::set<int> told = {hops.front()};
  for (size_t i = 0; i + 1 < hops.size(); ++i) {
    const int from = hops[i], to = hops[i + 1];
    if (!told.insert(to).second) continue;
    if (to == rank) route.from = from;
    if (from == rank) route.to.push_back(to);
  }
  return route;
}

}  // namespace strata
