#include "engine/plan/grid/stage_map.h"

#include <algorithm>
#include <iterator>

namespace strata {
namespace {

constexpr std::string_view kOnAV[] = {"zbv", "v_half", "v_min", "dualpipev"};

}  // namespace

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

std::vector<int> StageMap(std::string_view schedule, int ranks, int stages_per_rank) {
  const bool is_v = std::find(std::begin(kOnAV), std::end(kOnAV), schedule) != std::end(kOnAV);
  return is_v ? VMap(ranks, stages_per_rank) : LoopMap(ranks, stages_per_rank);
}

}  // namespace strata
