#include "engine/schedule/stage_map.h"

#include <cstddef>

namespace strata {

std::vector<int> LoopMap(int ranks, int stages_per_rank) {
  std::vector<int> stage_ranks(static_cast<size_t>(ranks) * stages_per_rank);
  for (size_t s = 0; s < stage_ranks.size(); ++s) stage_ranks[s] = static_cast<int>(s) % ranks;
  return stage_ranks;
}

std::vector<int> VMap(int ranks, int stages_per_rank) {
  std::vector<int> stage_ranks = LoopMap(ranks, stages_per_rank);
  for (size_t s = 0; s < stage_ranks.size(); ++s) {
    const bool is_returning = static_cast<int>(s) / ranks % 2 == 1;
    if (is_returning) stage_ranks[s] = ranks - 1 - stage_ranks[s];
  }
  return stage_ranks;
}

}  // namespace strata
