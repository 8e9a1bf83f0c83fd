// BuildingBlock: schedules that repeat one micro-batch's pattern (Qi et al., arXiv:2405.15362),
// on a V with two stages a rank. Private to the package.
#pragma once

#include <string>

#include "engine/schedule/generators/generators.h"

namespace strata::schedule {

/// One micro-batch's way through the V, in time steps. Its four passes are F of the stages 0 to P-1
/// (ranks ascending), F of the stages P to 2P-1 (descending), I of these (ascending) and I of the
/// first ones (descending).
struct BuildingBlock {
  std::string name;
  /// Of each pass: steps from one rank to the next. The longer, the longer activations live.
  int hop[4] = {1, 1, 1, 1};
  /// Of each pass: steps that it waits before it starts. REQUIRES: no rank has two of its F and I
  /// in the same step modulo 6.
  int wait[4] = {0, 0, 0, 0};
};

/// Each micro-batch takes the block's way 6 steps behind the one before it: that is the order of
/// the F and I of a rank, and, with its two W in the steps modulo 6 that are left, its memory. In
/// the program, actions start as early as that order and that memory allow, and W fill gaps.
Program Repeat(const BuildingBlock& block, const Sizes& sizes);

}  // namespace strata::schedule
