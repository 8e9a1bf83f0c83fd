// Gantt: a program's run as text for a terminal.
#pragma once

#include <string>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

struct GanttOptions {
  /// Columns of the time axis. 0: as many as all names need, at most 160.
  int width = 0;
  /// ANSI colours: forwards blue, backwards green, weights yellow, overlaps cyan, the
  /// rest magenta.
  bool color = false;
  bool in_seconds = false;  ///< the simulation's times are seconds, shown as such: "12.3 ms"
};

/// A row per rank, time to the right, then a line with makespan, bubble and memory:
///
///   rank 0 |F0F1......B0==B1==|
///   rank 1 |..F0B0==F1B1==....|
///   makespan 9, bubble 33.3%, at most 2 activations alive on a rank
///
/// An action stands with its kind and micro-batch, and its stage where ranks have several, over the
/// columns that it takes: filled with '-' for F and R, '=' for B and I, '~' for W, '#' for an
/// overlap, '*' for reductions and steps; '.' is idle. Where a name is too long, forwards keep the
/// last digits of their micro-batch and others their first letters. What takes no time is left out.
/// REQUIRES: `simulation` is the program's.
std::string Gantt(const Program& program, const Simulation& simulation,
                  const GanttOptions& options = {});

/// A line that says what the letters and numbers of the program's picture are.
std::string GanttLegend(const Program& program);

}  // namespace strata::schedule
