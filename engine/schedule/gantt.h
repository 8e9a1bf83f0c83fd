// Gantt: a program's run as text for a terminal.
#pragma once

#include <string>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

struct GanttOptions {
  int width = 0;       ///< columns for the time axis; 0: two per unit of time, at most 160
  bool color = false;  ///< ANSI colours: forward blue, backward green, weights yellow
};

/// A row per rank, time to the right, then makespan and bubble share. Forwards show the digits of
/// their micro-batch, backwards stand in brackets or, where too narrow, after a letter:
///   rank 0 |F0F1F2    B0..
/// REQUIRES: `simulation` is the program's.
std::string Gantt(const Program& program, const Simulation& simulation,
                  const GanttOptions& options = {});

}  // namespace strata::schedule
