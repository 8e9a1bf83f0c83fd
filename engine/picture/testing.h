// Helpers for tests: the timeline of a generated program, a small picture, and a decoder of a
// lane's code.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/picture/lane_code.h"
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

/// Decodes the text that lane_code.h defines, as the page's script does.
class LaneDecoder {
 public:
  explicit LaneDecoder(std::string_view code) : code_(code) {}

  /// `memory_before`: none for a lane without memory.
  Lane Read(const Grain& grain, std::optional<int64_t> memory_before) {
    Lane lane;
    lane.memory_before = memory_before.value_or(0);
    int64_t end = 0, memory = std::llround(static_cast<double>(lane.memory_before) / grain.bytes);
    while (!code_.empty()) {
      const uint64_t head = Number(), place = head / 16;
      if (place > shapes_.size()) throw ConfigError("a lane's code names what it did not define");
      if (place == shapes_.size()) shapes_.push_back(Define());
      Shape& shape = shapes_[place];
      NextMicroBatches(head & 1, shape.action);
      const int64_t start = end + static_cast<int64_t>(head & 2 ? Number() : 0);
      if (head & 4) shape.duration += Signed();
      end = start + shape.duration;
      lane.actions.push_back(shape.action);
      lane.times.push_back({start * grain.tick, end * grain.tick});
      if (!memory_before) continue;
      if (head & 8) shape.memory = Signed();
      memory += shape.memory;
      lane.memory.push_back(memory * grain.bytes);
    }
    return lane;
  }

 private:
  struct Shape {
    schedule::Action action;  ///< the last one
    int64_t duration = 0;
    int64_t memory = 0;
  };

  uint64_t Number() {
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint64_t number = 0;
    for (int shift = 0; shift < 60 && !code_.empty(); shift += 5) {
      const size_t digit = kAlphabet.find(code_.front());
      if (digit == std::string_view::npos) break;
      code_.remove_prefix(1);
      number |= (digit % 32) << shift;
      if (digit < 32) return number;
    }
    throw ConfigError("this is no code of a lane");
  }

  int64_t Signed() {
    const uint64_t number = Number();
    const auto half = static_cast<int64_t>(number >> 1);
    return number & 1 ? -half - 1 : half;
  }

  schedule::Kind Kind() {
    const uint64_t kind = Number();
    if (kind <= static_cast<uint64_t>(schedule::Kind::kReshard)) return schedule::Kind(kind);
    throw ConfigError("a lane has no such kind of action");
  }

  Shape Define() {
    Shape shape;
    shape.action.kind = Kind();
    shape.action.stage = static_cast<int16_t>(Number() - 1);
    if (shape.action.kind != schedule::Kind::kOverlap) return shape;
    shape.action.backward_kind = Kind();
    shape.action.backward_stage = static_cast<int16_t>(Number() - 1);
    return shape;
  }

  void NextMicroBatches(bool is_written, schedule::Action& action) {
    const bool overlaps = action.kind == schedule::Kind::kOverlap;
    if (!overlaps && !schedule::HasMicroBatch(action.kind)) return;
    action.micro_batch += 1 + static_cast<int32_t>(is_written ? Signed() : 0);
    if (overlaps)
      action.backward_micro_batch += 1 + static_cast<int32_t>(is_written ? Signed() : 0);
  }

  std::string_view code_;
  std::vector<Shape> shapes_;
};

/// The lane that EncodeLane() wrote, with times and bytes rounded to grains. Throws ConfigError for
/// a text that EncodeLane() cannot have written.
inline Lane DecodeLane(std::string_view code, const Grain& grain,
                       std::optional<int64_t> memory_before) {
  return LaneDecoder(code).Read(grain, memory_before);
}

}  // namespace strata::picture::testing
