// Finds the time step of every action with the simulator, in which every action takes one step.
#include <utility>
#include <vector>

#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/generators/list_schedule.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

Program WithIdleSteps(const Program& program) {
  const Simulation simulation = Simulate(program, {.backward = {1}, .overlap = {1}});
  Program drawn = IdleGrid(program.name, program.stage_ranks, program.ranks(),
                           program.micro_batches, static_cast<int>(simulation.makespan));
  drawn.is_training = program.is_training;
  for (int r = 0; r < program.ranks(); ++r) {
    for (size_t i = 0; i < program.rows[r].size(); ++i) {
      const auto step = static_cast<size_t>(simulation.times[r][i].start);
      if (program.rows[r][i].kind != Kind::kIdle) drawn.rows[r][step] = program.rows[r][i];
    }
  }
  return drawn;
}

Program FillWithWeightGrads(const Program& program, int memory) {
  return WithIdleSteps(ListSchedule(program, {}, {.memory = memory}));
}

}  // namespace strata::schedule
