// Alternative: one way to train a job, planned and simulated, so that ways can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"
#include "engine/plan/plan.h"

namespace strata {

struct Alternative {
  Job job;
  std::string trouble;  ///< why this way is impossible; "" = possible, and the rest is set
  Plan plan = {};
  StepForecast forecast = {};

  int64_t ranks() const { return plan.topology.world_size(); }
  /// Seconds of a step divided by its samples, over all replicas.
  double SecondsPerSample() const;
};

/// Plans and simulates the job. A ConfigError becomes the alternative's trouble.
Alternative TryJob(Job job, const PlanOptions& options, const MachineRates& rates, Script* script);

/// The same with ForecastHere().
Alternative TryJobHere(Job job, const PlanOptions& options, Script* script);

/// The job with these cuts.
Job WithCuts(Job job, const std::vector<int>& bounds);

/// A table of the alternatives side by side: partition, stages, schedule, micro-batches, cuts,
/// slowest stage, balance, bubble, memory of the fullest rank, step.
std::string CompareText(const std::vector<Alternative>& alternatives);
/// A list of {partition, pipe, schedule, stages_per_rank, micro_batches, bounds, slowest_stage,
/// slowest, balance, bubble, memory, step}. An impossible alternative has `trouble` in place of the
/// results.
Value CompareValue(const std::vector<Alternative>& alternatives);

}  // namespace strata
