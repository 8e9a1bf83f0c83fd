// Gantt: draws the run of a program as text for a terminal.
#pragma once

#include <string>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

struct GanttOptions {
  /// The number of columns of the time axis. 0: as many as all names need, at most 160.
  int width = 0;
  /// Draws ANSI colours: forwards blue, backwards green, weight gradients yellow, overlaps cyan,
  /// everything else magenta.
  bool color = false;
  bool in_seconds =
      false;  ///< the simulation's times are seconds and are shown with a unit: "12.3 ms"
};

/// Draws one row for each rank, time to the right, then a line with makespan, bubble and memory:
///
///   rank 0 |F0F1......B0==B1==|
///   rank 1 |..F0B0==F1B1==....|
///   makespan 9, bubble 33.3%, at most 2 activations alive on a rank
///
/// A box over the columns that an action takes begins with the action's kind and micro-batch,
/// preceded by its stage if ranks have several. The rest of the box is filled with '-' for F and R,
/// '=' for B and I, '~' for W, '#' for an overlap, '*' for reductions and steps; '.' is idle time.
/// If a name is too long, a forward keeps the last digits of its micro-batch and other actions keep
/// their first letters. Actions that take no time are left out. REQUIRES: `simulation` is the
/// program's.
std::string Gantt(const Program& program, const Simulation& simulation,
                  const GanttOptions& options = {});

/// One line that explains the letters and numbers in the picture of the program.
std::string GanttLegend(const Program& program);

}  // namespace strata::schedule
