// BuildingBlock: schedules that repeat the pattern of one micro-batch (Qi et al.,
// arXiv:2405.15362), on a V with two stages per rank. Private to the package.
#pragma once

#include <string>

#include "engine/schedule/generators/generators.h"

namespace strata::schedule {

/// The path of one micro-batch through the V, in time steps. It has four passes: F of the stages 0
/// to P-1 (ranks ascending), F of the stages P to 2P-1 (ranks descending), I of the latter
/// (ascending), and I of the former (descending).
struct BuildingBlock {
  std::string name;
  /// For each pass: the number of steps from one rank to the next. Longer hops make activations
  /// live longer.
  int hop[4] = {1, 1, 1, 1};
  /// For each pass: the number of steps that it waits before it starts. REQUIRES: no rank has two
  /// of its F and I in the same step modulo 6.
  int wait[4] = {0, 0, 0, 0};
};

/// Makes a schedule in which each micro-batch follows the block's path 6 steps after the one before
/// it. This gives the order of the F and I of each rank. Together with the two W of a rank, in the
/// steps modulo 6 that are left, it also gives the memory. In the program actions start as early as
/// this order and this memory allow, and W fill gaps.
Program Repeat(const BuildingBlock& block, const Sizes& sizes);

}  // namespace strata::schedule
