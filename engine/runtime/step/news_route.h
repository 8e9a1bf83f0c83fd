// NewsRoute: the way of what the first rank of a pipeline knows to all the others, along the links
// between neighbouring stages.
#pragma once

#include <vector>

#include "engine/plan/plan.h"

namespace strata {

struct NewsRoute {
  int from = -1;        ///< who tells this rank; -1: nobody, it knows
  std::vector<int> to;  ///< whom it tells
};

/// Of rank `rank` of the transport; `pipe_ranks`: the transport's rank of each rank of the pipe
/// axis. The news go from the first stage on, from stage to stage, and every rank is told once: on
/// the way to the first of its stages that they reach.
NewsRoute RouteOf(int rank, const Plan& plan, const std::vector<int>& pipe_ranks);

}  // namespace strata
