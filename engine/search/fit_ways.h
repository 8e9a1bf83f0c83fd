// FitWays: changes of a job whose plan needs more memory than there is, that make it fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"

namespace strata {

/// The prediction for a job's own plan.
struct PlanNeeds {
  int64_t memory = 0;   ///< bytes, of what the limit is for: the fullest rank, or all ranks
  double step = 0;      ///< seconds
  int64_t samples = 0;  ///< of a step, over all replicas
  int ranks = 1;
  int data = 1;    ///< replicas
  int layers = 1;  ///< the most stages that the plan could have
};
/// The needs of a plan that takes so many bytes and seconds.
PlanNeeds NeedsOf(const Plan& plan, int64_t memory, double step);
/// Plans and predicts a job, whatever memory it needs; nothing for a job that is impossible.
using PredictNeeds = std::function<std::optional<PlanNeeds>(const Job&)>;

/// One way to make a job fit, as flags: "--recompute=every:1".
struct FitWay {
  std::string flags;
  PlanNeeds needs;
};

/// Finds at most three ways that need at most `limit` bytes, the cheapest first: those with the
/// fewest ranks, then with the least time per sample. Recomputation, smaller micro-batches, more
/// stages and ZeRO are tried, and the best of each is a way. If none of these is enough, two and
/// then all of them are combined. Empty if nothing that was tried fits. `now`: what the job's own
/// plan needs.
std::vector<FitWay> WaysToFit(const Job& job, const PlanNeeds& now, int64_t limit,
                              const PredictNeeds& predict);

/// The table of the ways with their memory and step, beneath a sentence; it says so if there are
/// none.
std::string FitWaysText(const std::vector<FitWay>& ways);
/// A list of {flags, memory, step, ranks}.
Value FitWaysValue(const std::vector<FitWay>& ways);

/// A sentence for a job whose `recompute = true` saves less than 1 % of the memory, as with a
/// single stage, whose activations all exist at once when it has run forward again. It says what
/// every:1 would need. "" for all other jobs.
std::string RecomputeNote(const Job& job, const PredictNeeds& predict);

}  // namespace strata
