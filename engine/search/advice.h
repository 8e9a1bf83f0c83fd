// Advice: what limits the step of a planned job, and which changes would make it shorter. Both come
// from simulations: of the step without each of its limits, and of the step with each remedy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/search/alternative.h"

namespace strata {

/// A cause of lost time, and the share of the step that it costs.
struct Limit {
  std::string what;  ///< "waiting for stage 0, the slowest"
  double share = 0;
};

/// A change that makes the step shorter.
struct Remedy {
  std::string what;  ///< "cuts that balance time"
  std::string keys;  ///< as job:plan{...} accepts them: `partition={0, 3, 7}`
  double step = 0;
  double gain = 0;     ///< saved share of the time per sample
  int64_t memory = 0;  ///< bytes of the fullest rank
  int64_t ranks = 0;
  double bubble = 0;
};

struct Advice {
  Alternative now;
  double work = 0;            ///< share of the step spent computing, averaged over ranks
  std::vector<Limit> limits;  ///< the rest, largest first, without shares below 0.1 %
  /// At most three, one per kind (the cheapest, then the one that saves most). The cheapest come
  /// first: those that need neither more memory nor more ranks, then those with more memory, then
  /// those with more ranks.
  std::vector<Remedy> remedies;
};

/// Finds the limits and remedies of `now`. REQUIRES: `now` has no trouble.
Advice Advise(Alternative now, const PlanOptions& options, Script* script);

std::string AdviceText(const Advice& advice);
/// {work, limits = [{what, share}], remedies = [{what, keys, step, gain, memory, ranks, bubble}]}.
Value AdviceValue(const Advice& advice);

}  // namespace strata
