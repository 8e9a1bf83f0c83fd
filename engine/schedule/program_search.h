// ProgramSearch: a program for costs and memory that are known, where no schedule's name says it.
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
  /// The most activations (pairs of stage and micro-batch) that a rank may have alive; 0: no limit.
  int memory = 0;
  /// The bytes that the program's largest rank needs, and the most that it may; 0: no limit.
  std::function<int64_t(const Program&)> bytes = {};
  int64_t byte_limit = 0;
  /// What less memory is worth: the Price() is to be least. 0: the time alone.
  double memory_weight = 0;
  /// The rank of every stage; empty: the loop or the V, whatever is faster.
  std::vector<int> stage_ranks = {};
};

/// What is to be least where memory is weighed: seconds * bytes^memory_weight.
double Price(double seconds, double bytes, double memory_weight);

struct FoundProgram {
  Program program;     ///< compute-only, called "auto", gradients in ascending order
  std::string origin;  ///< what it was made from: a schedule's name, "list" for none
  Simulation simulation;
};

/// The fastest program found: of all named schedules that fit the sizes and the memory, of list
/// schedules on the loop and on the V, and of what local search makes of the best of them. So it is
/// never slower than a named schedule with the same costs and limits, where no memory is weighed.
/// Of equally good ones the one whose ranks wait least between their first action and their last,
/// then the one with less memory. The same answer on every machine. Throws ConfigError: costs that
/// Simulate() refuses, and limits in which no program runs, with the least that is needed.
FoundProgram SearchProgram(const Sizes& sizes, const ProgramSearchOptions& options = {});

/// What no program with these sizes can be faster than, on any map: each rank has its work to do
/// once a first input has come to it, and a micro-batch its way up and back. 0 where overlaps have
/// a cost of their own. REQUIRES: what Simulate() takes.
double LowerBound(const Sizes& sizes, const Costs& costs);

}  // namespace strata::schedule
