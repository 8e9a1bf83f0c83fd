// Outlook: how near a plan's schedule is to the best that there could be, and what a searched one
// (schedule = "auto") would do with more memory than its limit.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"

namespace strata {

struct Outlook {
  /// Of the plan's program: with the plan's seconds, else with 1 for each forward, input gradient
  /// and weight gradient, its share of the forward for R, and messages for nothing.
  schedule::Simulation simulation;
  std::string costs;  ///< what these seconds are; "" = there are none
  std::string schedule;
  double least_bubble = 0;  ///< no schedule of these sizes has less; 0: not known

  bool is_limited = false;  ///< searched within a memory limit
  /// Of the fullest rank, with the schedule that would be searched without the limit, where its
  /// step is shorter; 0: more memory makes nothing shorter.
  int64_t wanted_memory = 0;
  double wanted_bubble = 0;
  double saving = 0;  ///< share of the step
};

/// `forecast`: of the plan.
Outlook LookOut(const Job& job, const Plan& plan, const StepForecast& forecast);

/// "schedule auto, predicted bubble 20.0% (no schedule has less than 4.0%; with measured costs)".
std::string BubbleText(const Outlook& outlook);
/// What more memory would do, a line; "" where there is no limit.
std::string MoreMemoryText(const Outlook& outlook);
/// {bubble, least_bubble}, and where there is a limit {more_memory = {memory, bubble, saving}}, a
/// table without entries where more memory does nothing.
Value OutlookValue(const Outlook& outlook);

}  // namespace strata
