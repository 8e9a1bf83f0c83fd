// Stage maps: the rank of the pipe axis that each stage is on. StageMap() of
// engine/schedule/generators gives the map of a named schedule.
#pragma once

#include <vector>

namespace strata {

/// The loop map: stage s is on rank s mod `ranks`. Every rank has `stages_per_rank` stages, whose
/// numbers are `ranks` apart.
std::vector<int> LoopMap(int ranks, int stages_per_rank);

/// The V map: stages go up the ranks and come back, 0 1 2 2 1 0 for 3 ranks with 2 stages each. The
/// two stages at a turn share a rank and pass tensors directly.
std::vector<int> VMap(int ranks, int stages_per_rank);

}  // namespace strata
