// Stage maps: which rank of the pipe axis has which stages. engine/schedule/generators says which
// schedule has which map.
#pragma once

#include <vector>

namespace strata {

/// Stage s on rank s mod ranks: every rank has `stages_per_rank` stages, ranks apart.
std::vector<int> LoopMap(int ranks, int stages_per_rank);

/// Stages go up the ranks and come back: 0 1 2 2 1 0 for 3 ranks with 2 stages each. Neighbours
/// at a turn share a rank and pass tensors directly.
std::vector<int> VMap(int ranks, int stages_per_rank);

}  // namespace strata
