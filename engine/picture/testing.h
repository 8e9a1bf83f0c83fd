// Helpers for tests: the timeline of a generated program, a small picture, and a reader of a page's
// lanes.
#pragma once

#include <string>
#include <utility>

#include "engine/base/value.h"
#include "engine/picture/picture.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/simulator.h"

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
  picture.stages = {{0, "0", 72, 3, 128, 128}, {1, "1", 18, 1, 128, 32}};
  picture.timelines = {GeneratedTimeline("1f1b", {2, 1, 3})};
  return picture;
}

/// The lane of PageData(), as the page's script reads it.
inline Lane LaneOf(const Value& data, double tick) {
  const auto at = [&](const char* list, size_t i) { return data[list].as_list()[i].as_int(); };
  Lane lane{.rank = static_cast<int>(data["rank"].as_int())};
  if (!data["before"].is_null()) lane.memory_before = data["before"].as_int();
  int64_t now = 0, held = lane.memory_before;
  for (size_t i = 0; i < data["shape"].as_list().size(); ++i) {
    const Value::List& shape = data["shapes"].as_list().at(at("shape", i)).as_list();
    schedule::Action action;
    action.kind = static_cast<schedule::Kind>(shape[0].as_int());
    action.stage = static_cast<int16_t>(shape[1].as_int());
    action.backward_kind = static_cast<schedule::Kind>(shape[2].as_int());
    action.backward_stage = static_cast<int16_t>(shape[3].as_int());
    action.micro_batch = static_cast<int32_t>(at("micro", i));
    action.backward_micro_batch = static_cast<int32_t>(at("other", i));
    lane.actions.push_back(action);
    const int64_t start = now + at("gap", i);
    now = start + at("took", i);
    lane.times.push_back({start * tick, now * tick});
    if (!data["before"].is_null()) lane.memory.push_back(held += at("memory", i));
  }
  return lane;
}

}  // namespace strata::picture::testing
