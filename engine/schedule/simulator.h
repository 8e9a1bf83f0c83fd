// Simulator: computes when every action of a program runs, from costs per stage. It predicts
// makespan, bubble and memory of a schedule without running it. It models no contention but that of
// a link.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// The seconds (or any other unit) of actions and messages. A list has one entry for all stages or
/// one per stage.
struct Costs {
  std::vector<double> forward = {1};
  std::vector<double> input_grad = {1};
  std::vector<double> weight_grad = {1};
  std::vector<double> backward = {};   ///< empty: input_grad + weight_grad
  std::vector<double> recompute = {};  ///< empty: forward
  std::vector<double> overlap = {};    ///< by the stage of the forward; empty: the sum of the parts
  double comm = 0;  ///< latency of a message between ranks; no rank is busy meanwhile
  /// The time for which a message keeps its link (links.h) from the next message, in addition to
  /// `comm`. Entry s is for messages that leave stage s forward or come back to it.
  std::vector<double> transfer = {0};
  std::vector<double> latency = {
      0};  ///< in addition to comm, for the same messages; no rank is busy meanwhile
  std::vector<double> reduce = {0};  ///< of REDUCE_TIED and of REDUCE_GRAD each; the rank is busy
  std::vector<double> step = {0};    ///< of STEP; the rank is busy
  std::vector<double> begin = {0};   ///< what the rank does for a stage before its first action
  double action = 0;                 ///< added to each F, I, W, B and R, and twice to an overlap
};

/// The cost of one stage in a list of one entry or of one per stage.
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
  std::vector<double> wait;  ///< per rank: idle time between its first action and its last
  std::vector<int> peak_activations;         ///< per rank, see PeakActivations()
  std::vector<std::vector<Interval>> times;  ///< of every action, with the shape of Program::rows
};

/// Simulates the program: each rank starts an action as soon as the one before it in the row is
/// done and its inputs have arrived. Idle cells take no time, since they only belong to a drawing.
/// In a compute-only program a message leaves when its action ends, in a lowered one at its SEND. A
/// RECV takes no time; the action that reads the message waits for it. Throws ConfigError if the
/// program cannot finish (and tells the waiting ranks), a cost is negative, or a list has neither
/// one entry nor one per stage. The time is linear in the number of actions.
Simulation Simulate(const Program& program, const Costs& costs = {});

}  // namespace strata::schedule
