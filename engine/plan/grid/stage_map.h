// StageMap: which rank of the pipe axis has which stages.
#pragma once

#include <string_view>
#include <vector>

namespace strata {

/// Stage s on rank s mod ranks: every rank has `stages_per_rank` stages, ranks apart.
std::vector<int> LoopMap(int ranks, int stages_per_rank);

/// Stages go up the ranks and come back: 0 1 2 2 1 0 for 3 ranks with 2 stages each. Neighbours
/// at a turn share a rank and pass tensors directly.
std::vector<int> VMap(int ranks, int stages_per_rank);

/// The map of the schedule of this name: a V for zbv, v_half, v_min and dualpipev, else a loop.
std::vector<int> StageMap(std::string_view schedule, int ranks, int stages_per_rank);

}  // namespace strata
