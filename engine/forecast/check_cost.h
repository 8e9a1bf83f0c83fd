// CheckCost: predicts what a checked step (job.check, runtime/check/) takes longer than another
// one, and how often one may come for a share of the time.
//
// The drawn rank, one of its stages, and a micro-batch are chosen evenly, so the seconds are a mean
// over stages. Besides the compute, which the second rank repeats, all of it is reading and writing
// memory: copies, digests, messages. Both ranks do that one after the other.
//
//   build      the stage twice (actions, update): random initial values
//   actions    forward and backward of the micro-batch; parameters, and the sums of gradients once
//              per action that adds to them, are copied, sent and digested
//   update     parameters, gradients and optimizer state are copied, sent and digested; an update
//   memory     parameters and optimizer state of the fullest rank are digested twice
//   messages   activations and gradients of the step are digested at both ends
#pragma once

#include "engine/forecast/forecast.h"

namespace strata {

struct CheckCost {
  double seconds = 0;  ///< that a checked step takes longer
  int64_t every = 1;   ///< steps from one checked step to the next
  double share = 0;    ///< of the time that goes into checks
  int64_t memory = 0;  ///< bytes that a rank needs besides its own at that time, at most
};

/// True if steps of the job are checked: that needs a second rank.
inline bool IsChecked(const Job& job, const Plan& plan) {
  return job.trains && job.check.is_on() && plan.topology.world_size() > 1;
}

/// `step`: ForecastHere() of the plan. REQUIRES: IsChecked().
CheckCost ForecastCheck(const Job& job, const Plan& plan, const StepForecast& step);

/// "a checked step takes 12 ms longer and 3 MiB more on a rank; every 40 steps, that is 2.0% of the
/// time".
std::string CheckText(const CheckCost& cost);

}  // namespace strata
