// Helpers that generators share: an empty program, idle time steps, weight gradients, and the
// alternation of forwards and backwards. Private to the package.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/program.h"

namespace strata::schedule {

/// Makes a program in which every rank has `steps` idle cells.
inline Program IdleGrid(std::string name, std::vector<int> stage_ranks, int ranks,
                        int micro_batches, int steps) {
  Program program;
  program.name = std::move(name);
  program.stage_ranks = std::move(stage_ranks);
  program.micro_batches = micro_batches;
  program.rows.assign(ranks, std::vector<Action>(steps));
  return program;
}

/// Adds idle time steps to a program for its drawing. Each action takes one step, the first that is
/// after the action before it in its row and after the actions that give what it reads. REQUIRES:
/// the program is compute-only and can finish.
Program WithIdleSteps(const Program& program);

/// Decides when weight gradients run. In each time step a rank runs the next F or I of its row if
/// its input is there and, for F, fewer than `memory` pairs of stage and micro-batch have their
/// activations alive. Otherwise it runs its oldest W that is due, or it is idle. REQUIRES: the
/// program has F, I and W only and can finish with this memory when each W runs at its place in the
/// row.
Program FillWithWeightGrads(const Program& program, int memory);

/// The parameters of 1F1B and related schedules on the loop map. A rank runs some forwards ahead
/// (warm-up), then a forward and a backward in turn, then the backwards that are left. With several
/// stages per rank, it takes the micro-batches in groups of P (the number of ranks) or a few more:
/// all forwards of a group go through its first stage, then through its second, and so on;
/// backwards go through its stages in the opposite order.
struct Alternation {
  const char* name;
  /// The number of forwards that a rank runs ahead in addition to those of the next rank.
  int lead = 1;
  /// True: backwards are split into I and W.
  bool splits = false;
  /// The first W of a rank comes after its I number lag * rank (from 0); from then on a W follows
  /// every I.
  int lag = 0;
};

Program Alternate(const Sizes& sizes, const Alternation& alternation);

}  // namespace strata::schedule
