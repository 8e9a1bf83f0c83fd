// Helpers for tests: the timeline of a generated program, and a small picture.
#pragma once

#include <string>
#include <utility>

#include "engine/picture/picture.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/simulate/simulator.h"

namespace strata::picture::testing {

/// One step of a generated program.
inline Timeline GeneratedTimeline(const std::string& name, schedule::Sizes sizes,
                                  const schedule::Costs& costs = {}) {
  const schedule::Program program = schedule::Generate(name, sizes);
  const schedule::Simulation simulation = schedule::Simulate(program, costs);
  Timeline timeline{.name = "predicted", .in_seconds = false, .lanes = {}};
  for (int rank = 0; rank < program.ranks(); ++rank) {
    Lane lane{.rank = rank};
    int64_t memory = lane.memory_before = 1000;
    for (size_t i = 0; i < program.rows[rank].size(); ++i) {
      const schedule::Action& action = program.rows[rank][i];
      if (action.kind == schedule::Kind::kIdle) continue;
      lane.actions.push_back(action);
      lane.times.push_back(simulation.times[rank][i]);
      if (action.kind == schedule::Kind::kForward) memory += 64;
      if (schedule::GivesWeightGrad(action.kind)) memory -= 64;
      lane.memory.push_back(memory);
    }
    timeline.lanes.push_back(std::move(lane));
  }
  return timeline;
}

/// A network of two layers on two stages, with a predicted step.
inline Picture SmallPicture() {
  Picture picture;
  picture.title = "tiny";
  picture.facts = {"2 ranks"};
  picture.layers = {{"0", "Linear", "(4, 8)", 72, 0}, {"1", "Linear", "(4, 2)", 18, 1}};
  picture.cost_unit = "FLOP";
  picture.stages = {{0, 0, 1, 72, 3, 128, 128}, {1, 1, 2, 18, 1, 128, 32}};
  picture.timelines = {GeneratedTimeline("1f1b", {2, 1, 3})};
  return picture;
}

}  // namespace strata::picture::testing
