#include "engine/picture/lane_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/base/error.h"
#include "engine/picture/testing.h"

namespace strata::picture {
namespace {

using schedule::Action;
using schedule::Interval;
using schedule::Kind;
using testing::DecodeLane;
using testing::GeneratedTimeline;

void ExpectNear(const Lane& decoded, const Lane& lane, const Grain& grain) {
  EXPECT_EQ(decoded.actions, lane.actions);
  ASSERT_EQ(decoded.times.size(), lane.times.size());
  for (size_t i = 0; i < lane.times.size(); ++i) {
    EXPECT_NEAR(decoded.times[i].start, lane.times[i].start, grain.tick / 2);
    EXPECT_NEAR(decoded.times[i].end, lane.times[i].end, grain.tick / 2);
  }
  ASSERT_EQ(decoded.memory.size(), lane.memory.size());
  for (size_t i = 0; i < lane.memory.size(); ++i) {
    EXPECT_NEAR(decoded.memory[i], lane.memory[i], grain.bytes);
  }
}

Lane RoundTrip(const Lane& lane, const Grain& grain) {
  const auto before = lane.memory.empty() ? std::nullopt : std::optional(lane.memory_before);
  return DecodeLane(EncodeLane(lane, grain), grain, before);
}

TEST(LaneCode, IsAsItsHeaderSays) {
  Lane lane{.rank = 0,
            .actions = {schedule::ParseAction("1F0"), schedule::ParseAction("1F1"),
                        schedule::ParseAction("1F3"), schedule::ParseAction("1STEP")},
            .times = {{0, 2}, {2, 4}, {5, 7}, {7, 7}}};
  // 1F0: place 0, new (kind 1, stage 1), a duration of 2. 1F1: all as expected. 1F3: one
  // micro-batch further than expected, after a gap of 1. 1STEP: place 1, new (kind 13, stage 1).
  EXPECT_EQ(EncodeLane(lane, {}), "EBCEADCBQNC");
  EXPECT_EQ(DecodeLane("", {}, std::nullopt).actions.size(), 0u);
}

TEST(LaneCode, KeepsGeneratedProgramsExactly) {
  for (const char* name : {"gpipe", "1f1b", "zb_h1", "interleaved_1f1b", "dualpipev", "zbv"}) {
    const int per_rank = name[0] == 'i' || name[0] == 'd' || name == std::string("zbv") ? 2 : 1;
    const Timeline timeline = GeneratedTimeline(name, {4, per_rank, 12});
    const Grain grain = GrainOf(timeline);
    for (const Lane& lane : timeline.lanes) {
      const Lane decoded = RoundTrip(lane, grain);
      EXPECT_EQ(decoded.actions, lane.actions) << name;
      EXPECT_EQ(decoded.memory, lane.memory) << name;
      for (size_t i = 0; i < lane.times.size(); ++i) {
        EXPECT_EQ(decoded.times[i].start, lane.times[i].start) << name;
        EXPECT_EQ(decoded.times[i].end, lane.times[i].end) << name;
      }
    }
  }
}

TEST(LaneCode, AFewCharactersForAnAction) {
  const Timeline timeline = GeneratedTimeline("zb_h1", {64, 1, 256});
  const Grain grain = GrainOf(timeline);
  size_t actions = 0, characters = 0;
  for (const Lane& lane : timeline.lanes) {
    actions += lane.actions.size();
    characters += EncodeLane(lane, grain).size();
  }
  EXPECT_EQ(actions, 64u * 256u * 3u);
  EXPECT_LT(characters, 3 * actions);
}

Action AnyAction() {
  const auto stage = *rc::gen::inRange(0, 4);
  const auto micro_batch = *rc::gen::inRange(0, 300);
  const auto kind = static_cast<Kind>(*rc::gen::inRange(1, 16));
  if (kind == Kind::kOverlap) {
    return schedule::MakeOverlap(
        schedule::MakeAction(stage, Kind::kForward, micro_batch),
        schedule::MakeAction(3 - stage, *rc::gen::element(Kind::kBackward, Kind::kInputGrad),
                             *rc::gen::inRange(0, 300)));
  }
  return schedule::MakeAction(stage, kind, schedule::HasMicroBatch(kind) ? micro_batch : -1);
}

/// A lane of random actions in random order, with times and bytes as a measurement may give them.
Lane AnyLane() {
  Lane lane;
  const bool has_memory = *rc::gen::arbitrary<bool>();
  if (has_memory) lane.memory_before = *rc::gen::inRange<int64_t>(0, int64_t{1} << 40);
  double time = 0;
  for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
    lane.actions.push_back(AnyAction());
    const double start = time + *rc::gen::element(0.0, 0.0, 1e-7, 0.25, 100.0 / 3);
    time = start + *rc::gen::element(0.0, 1.0, 1.0, 0.1, 2.0 / 3, 1e-6);
    lane.times.push_back({start, time});
    if (has_memory) {
      lane.memory.push_back(*rc::gen::inRange<int64_t>(0, int64_t{1} << 40));
    }
  }
  return lane;
}

RC_GTEST_PROP(LaneCode, IsDecodedToTheSameLane, ()) {
  const Lane lane = AnyLane();
  const Timeline timeline{
      .name = "any", .in_seconds = *rc::gen::arbitrary<bool>(), .lanes = {lane}};
  const Grain grain = GrainOf(timeline);
  ExpectNear(RoundTrip(lane, grain), lane, grain);
}

RC_GTEST_PROP(LaneCode, AnyTextIsReadOrRefused, (const std::string& code)) {
  try {
    DecodeLane(code, {}, 0);
  } catch (const ConfigError&) {
  }
}

TEST(LaneCode, DamageIsRefused) {
  // Undefined places, numbers without an end, characters outside the alphabet, an unknown kind.
  for (const char* code : {"Q", "g", "A", "AB", "A!", "AfBB", "gggggggggggggggggggg"}) {
    EXPECT_THROW(DecodeLane(code, {}, std::nullopt), ConfigError) << code;
  }
}

TEST(LaneCode, LeavesOutWhatTheDetailSays) {
  Lane lane{.rank = 0,
            .actions = {schedule::ParseAction("0F0"), schedule::ParseAction("0SEND_F0")},
            .times = {{0, 1}, {1, 2}}};
  const Detail detail{.communication = false, .every = 1};
  EXPECT_EQ(DecodeLane(EncodeLane(lane, {}, detail), {}, std::nullopt).actions,
            std::vector<Action>{schedule::ParseAction("0F0")});
}

TEST(GrainOf, HasAMillionTicksAndFineBytes) {
  Timeline timeline{.name = "", .in_seconds = true, .lanes = {{}}};
  EXPECT_EQ(GrainOf(timeline).tick, 1);
  timeline.lanes[0].actions = {schedule::ParseAction("0F0")};
  timeline.lanes[0].times = {{0, 0.75}};
  timeline.lanes[0].memory = {int64_t{1} << 30};
  EXPECT_EQ(GrainOf(timeline).tick, 1.0 / (1 << 20));
  EXPECT_EQ(GrainOf(timeline).bytes, 1 << 14);
  timeline.in_seconds = false;
  EXPECT_EQ(GrainOf(timeline).bytes, 1);
}

}  // namespace
}  // namespace strata::picture
