// Outlook: compares a plan's schedule with the best possible one, and says what a searched schedule
// (schedule = "auto") would gain from more memory than its limit.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"

namespace strata {

struct Outlook {
  /// The simulation of the plan's program. Without seconds of the plan each forward, input gradient
  /// and weight gradient takes 1, R takes its share of the forward, and messages take no time.
  schedule::Simulation simulation;
  std::string costs;  ///< the source of the seconds; "" without seconds
  std::string schedule;
  double least_bubble = 0;  ///< no schedule of these sizes has a smaller bubble; 0 if not known

  bool is_limited = false;  ///< true if the schedule was searched within a memory limit
  /// Bytes of the fullest rank with the schedule that a search without the limit finds, if its step
  /// is shorter. 0: more memory does not make the step shorter.
  int64_t wanted_memory = 0;
  double wanted_bubble = 0;
  double saving = 0;  ///< share of the step time
};

/// Computes the outlook of a plan. `forecast`: that of the plan.
Outlook LookOut(const Job& job, const Plan& plan, const StepForecast& forecast);

/// "schedule auto, predicted bubble 20.0% (no schedule has less than 4.0%; with measured costs)".
std::string BubbleText(const Outlook& outlook);
/// One line that says what more memory would gain; "" if there is no limit.
std::string MoreMemoryText(const Outlook& outlook);
/// {bubble, least_bubble}, and if there is a limit {more_memory = {memory, bubble, saving}}, an
/// empty table if more memory gains nothing.
Value OutlookValue(const Outlook& outlook);

}  // namespace strata
