// Grid: what generators write into. Private to the package.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// A program of idle cells, `steps` for every rank.
inline Program IdleGrid(std::string name, std::vector<int> stage_ranks, int ranks,
                        int micro_batches, int steps) {
  Program program;
  program.name = std::move(name);
  program.stage_ranks = std::move(stage_ranks);
  program.micro_batches = micro_batches;
  program.rows.assign(ranks, std::vector<Action>(steps));
  return program;
}

}  // namespace strata::schedule
