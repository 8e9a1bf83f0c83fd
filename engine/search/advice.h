// Advice: what limits the step of a planned job, and what would make it shorter. Both are found by
// simulating: the step without each of its limits, and the step of every remedy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/search/alternative.h"

namespace strata {

/// A share of the step that would not be there without one thing.
struct Limit {
  std::string what;  ///< "waiting for stage 0, the slowest"
  double share = 0;
};

/// A change that makes the step shorter.
struct Remedy {
  std::string what;  ///< "cuts that balance time"
  std::string keys;  ///< as job:plan{...} takes them: `partition={0, 3, 7}`
  double step = 0;
  double gain = 0;     ///< share of the time per sample that it saves
  int64_t memory = 0;  ///< bytes of the fullest rank
  int64_t ranks = 0;
  double bubble = 0;
};

struct Advice {
  Alternative now;
  double work = 0;               ///< share of the step that is computing, the mean of the ranks
  std::vector<Limit> limits;     ///< the rest, the largest first; shares below 0.1 % are left out
  std::vector<Remedy> remedies;  ///< at most three, the cheapest first: those that need neither
                                 ///< more memory nor more ranks, then more memory, then more ranks;
                                 ///< of one kind the one that saves most
};

/// REQUIRES: `now` has no trouble.
Advice Advise(Alternative now, const PlanOptions& options, Script* script);

std::string AdviceText(const Advice& advice);
/// {work, limits = [{what, share}], remedies = [{what, keys, step, gain, memory, ranks, bubble}]}.
Value AdviceValue(const Advice& advice);

}  // namespace strata
