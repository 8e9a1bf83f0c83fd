// Decisions: what a plan decides about a job, as names and numbers. A saved plan stores them, a
// search chooses them, and a job accepts them as keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"

namespace strata {

struct Decisions {
  int pipe = 1;
  int data = 1;
  int model = 1;
  std::string schedule = "1f1b";
  int stages_per_rank = 1;
  int64_t micro_batches = 1;  ///< of each replica
  int64_t micro_batch_size = 1;
  std::vector<int> bounds = {};  ///< pipe * stages_per_rank + 1, from 0 to the number of layers

  int ranks() const { return pipe * data * model; }
  int stages() const { return pipe * stages_per_rank; }
  bool operator==(const Decisions&) const = default;
};

Decisions DecisionsOf(const Plan& plan);

/// The job with the plan's choices in the place of "auto".
Job Decided(Job job, const Plan& plan);

/// The job with its split layers (parts.h) joined again, for `who`, a part of the engine that does
/// not support parts. Throws ConfigError if a written cut is inside a layer.
Job WithWholeLayers(Job job, const char* who);

/// The decisions as keys of job:plan{...}. The schedule is left out if it has no name.
Value KeysOf(const Decisions& decisions);

/// "pipe 2 x data 1 x model 1".
std::string GridText(const Decisions& decisions);

/// Calls `visit(key, number)` for each integer decision; `decisions` may be const.
template <class T, class Visit>
void VisitNumbers(T& decisions, const Visit& visit) {
  visit("pipe", decisions.pipe);
  visit("data", decisions.data);
  visit("model", decisions.model);
  visit("stages_per_rank", decisions.stages_per_rank);
  visit("micro_batches", decisions.micro_batches);
  visit("micro_batch_size", decisions.micro_batch_size);
}

}  // namespace strata
