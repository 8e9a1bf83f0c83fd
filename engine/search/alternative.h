// Alternative: a way to train a job that somebody might choose, planned and simulated.
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
  std::string trouble;  ///< why it cannot be; "" = it can, and the rest is there
  Plan plan = {};
  StepForecast forecast = {};

  int64_t ranks() const { return plan.topology.world_size(); }
  /// Of a step, over all replicas.
  double SecondsPerSample() const;
};

/// The job planned and simulated; what is wrong with it is its trouble.
Alternative TryJob(Job job, const PlanOptions& options, const MachineRates& rates, Script* script);

/// The same with ForecastHere().
Alternative TryJobHere(Job job, const PlanOptions& options, Script* script);

/// The job with these cuts.
Job WithCuts(Job job, const std::vector<int>& bounds);

/// Side by side: partition, stages, schedule, micro-batches, cuts, slowest stage, balance, bubble,
/// memory of the fullest rank, step.
std::string CompareText(const std::vector<Alternative>& alternatives);
/// A list of {partition, pipe, schedule, stages_per_rank, micro_batches, bounds, slowest_stage,
/// slowest, balance, bubble, memory, step}, or with `trouble` instead of what is not known.
Value CompareValue(const std::vector<Alternative>& alternatives);

}  // namespace strata
