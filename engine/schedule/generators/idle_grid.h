// Grid: what generators write into, and what they share. Private to the package.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/generators/generators.h"
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

/// The program drawn with its idle time steps: each action takes one, and stands in the first that
/// comes after the action before it in its row and after those that give what it reads.
/// REQUIRES: a compute-only program that can finish.
Program WithIdleSteps(const Program& program);

/// Decides where weight gradients run. Time step by time step, a rank runs the next F or I of its
/// row if what it reads is there and, for F, fewer than `memory` pairs of stage and micro-batch
/// have their activations alive; else the oldest W that it owes; else it is idle. REQUIRES: F, I
/// and W only; a program that can finish with this memory when each W is where it stands.
Program FillWithWeightGrads(const Program& program, int memory);

/// The rows of 1F1B and its kin on the loop map: a rank runs some forwards ahead, then a forward
/// and a backward in turn, then the backwards that are left. With several stages a rank takes the
/// micro-batches in groups, of as many as there are ranks or a few more: all forwards of a group
/// through its first stage, then through its second; backwards the other way round.
struct Alternation {
  const char* name;
  /// Forwards that a rank runs ahead more than the next rank.
  int lead = 1;
  /// Splits backwards in I and W.
  bool splits = false;
  /// A rank's first W comes with the I number lag * rank, from 0; then one with every I.
  int lag = 0;
};

Program Alternate(const Sizes& sizes, const Alternation& alternation);

}  // namespace strata::schedule
