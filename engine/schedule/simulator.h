// Simulator: when every action of a program runs, from costs per stage. Predicts makespan, bubble
// and memory of a schedule without running it.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// Seconds (or any unit) per action. A list has one entry for all stages or one per stage.
struct Costs {
  std::vector<double> forward = {1};
  std::vector<double> input_grad = {1};
  std::vector<double> weight_grad = {1};
  std::vector<double> backward = {};   ///< empty: input_grad + weight_grad
  std::vector<double> recompute = {};  ///< empty: forward
  std::vector<double> overlap = {};    ///< by the forward's stage; empty: sum of the parts
  double comm = 0;                     ///< latency of a message between ranks; occupies nobody
  /// Beside it, of a message out of a stage or back to it: for so long its link (links.h) takes no
  /// other one.
  std::vector<double> transfer = {0};
  std::vector<double> latency = {0};  ///< beside comm, of the same messages; occupies nobody
  std::vector<double> reduce = {0};   ///< REDUCE_TIED, REDUCE_GRAD; occupies the rank
  std::vector<double> step = {0};     ///< STEP; occupies the rank
  std::vector<double> begin = {0};    ///< what a stage does before its rank's first action
  double action = 0;  ///< of each action that computes, beside its own; occupies the rank
};

/// Of one stage in such a list.
inline double CostAt(const std::vector<double>& costs, int stage) {
  return costs.size() == 1 ? costs[0] : costs[stage];
}

struct Interval {
  double start = 0;
  double end = 0;
};

struct Simulation {
  double makespan = 0;       ///< end of the last action
  double bubble = 0;         ///< 1 - sum(busy) / (ranks * makespan); 0 when nothing takes time
  std::vector<double> busy;  ///< per rank
  std::vector<double> wait;  ///< per rank: idle between its first action and its last
  std::vector<int> peak_activations;         ///< per rank, see PeakActivations()
  std::vector<std::vector<Interval>> times;  ///< of every action, as Program::rows
};

/// Runs the program on ranks that start each action as soon as the one before it in the row is
/// done and its inputs are there. Idle cells take no time: they are drawn by a generator, not
/// obeyed. In a compute-only program a message leaves when its action ends, in a lowered one at
/// its SEND; a RECV takes no time, the action that needs the message waits. Throws ConfigError: a
/// program that cannot finish (with the waiting ranks), a negative cost, a list that is neither 1
/// nor stages long. Linear in the actions.
Simulation Simulate(const Program& program, const Costs& costs = {});

}  // namespace strata::schedule
