// ProgramSearch: finds a fast program for known costs and a limit of memory. It is the schedule
// "auto", for cases that no named schedule fits best.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

struct ProgramSearchOptions {
  Costs costs = {};
  /// The largest number of activations (pairs of stage and micro-batch) that a rank may have alive;
  /// 0: no limit.
  int memory = 0;
  /// The bytes that the program's largest rank needs, and their limit (`byte_limit`); 0: no limit.
  std::function<int64_t(const Program&)> bytes = {};
  int64_t byte_limit = 0;
  /// How much memory counts: the search minimises Price(). 0: it minimises the time alone.
  double memory_weight = 0;
  /// The rank of every stage; empty: the loop map or the V map, whichever is faster.
  std::vector<int> stage_ranks = {};
};

/// The quantity that a search minimises when memory counts: seconds * bytes^memory_weight. Just
/// `seconds` if memory_weight is 0.
double Price(double seconds, double bytes, double memory_weight);

struct FoundProgram {
  Program program;  ///< compute-only, named "auto", gradients in ascending order
  std::string
      origin;  ///< the schedule that it was made from: a name, or "list" for a list schedule
  Simulation simulation;
};

/// Finds a fast program. It tries all named schedules that fit the sizes and the memory and list
/// schedules on the loop and the V, and improves the best of them by local search. So if memory has
/// no weight, the result is never slower than a named schedule with the same costs and limits. Of
/// equally good programs it takes the one whose longest-waiting rank waits least between its first
/// action and its last, then the one with less memory. The answer is the same on every machine.
/// Throws ConfigError for costs that Simulate() refuses, and if no program keeps to the limits; the
/// message tells the least that is needed.
FoundProgram SearchProgram(const Sizes& sizes, const ProgramSearchOptions& options = {});

/// A lower bound on the makespan of all programs with these sizes, on any map. Each rank has its
/// work to do once a first input has reached it, and a micro-batch has its way forward and back.
/// Returns 0 if overlaps have a cost of their own. REQUIRES: Simulate() accepts the costs.
double LowerBound(const Sizes& sizes, const Costs& costs);

}  // namespace strata::schedule
