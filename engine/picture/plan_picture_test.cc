#include "engine/picture/plan_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cost/profile.h"
#include "engine/layers/layer_types.h"
#include "engine/schedule/generators/generators.h"

namespace strata::picture {
namespace {

using schedule::Action;
using schedule::Program;
using schedule::RankTrace;
using schedule::Trace;
using ::testing::ElementsAre;

Timeline ForecastOf(const Program& program, const std::vector<StageBytes>& bytes) {
  return ForecastTimeline(program, schedule::Simulate(program), false, bytes);
}

TEST(ForecastTimeline, HoldsActivationsFromForwardToBackward) {
  const Program program = schedule::Generate("1f1b", {2, 1, 3});
  const std::vector<StageBytes> bytes = {{.always = 100, .held = {.kept = 10}},
                                         {.always = 50, .held = {.kept = 7}}};
  const Timeline timeline = ForecastOf(program, bytes);
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(timeline.lanes[0].memory_before, 100);
  // F0 F1 B0 F2 B1 B2
  EXPECT_THAT(timeline.lanes[0].memory, ElementsAre(110, 120, 110, 120, 110, 100));
  EXPECT_EQ(timeline.lanes[1].memory_before, 50);
  EXPECT_THAT(timeline.lanes[1].memory, ElementsAre(57, 50, 57, 50, 57, 50));
  EXPECT_FALSE(timeline.in_seconds);
  EXPECT_EQ(timeline.span(), 12);
}

TEST(ForecastTimeline, HoldsWhatIsDeferredAndRecomputed) {
  const std::vector<StageBytes> bytes = {{.held = {.kept = 8, .recomputed = 30, .deferred = 3}}};
  const auto memory = [&](const std::vector<std::string>& row) {
    return ForecastOf(schedule::ParseProgram({row}), bytes).lanes[0].memory;
  };
  EXPECT_THAT(memory({"0F0", "0I0", "0F1", "0W0", "0I1", "0W1"}), ElementsAre(8, 3, 11, 8, 3, 0));
  EXPECT_THAT(memory({"0F0", "0F1", "0R0", "0B0", "0R1", "0B1"}), ElementsAre(8, 16, 46, 8, 38, 0));
}

TEST(ForecastTimeline, AddsTheStagesOfARankAndOverlaps) {
  const Program program = schedule::Generate("dualpipev", {2, 2, 8});
  std::vector<StageBytes> bytes;
  for (int stage = 0; stage < 4; ++stage) {
    bytes.push_back({.always = 1000, .held = {.kept = 1}});
  }
  const Timeline timeline = ForecastOf(program, bytes);
  const std::vector<int> peaks = schedule::Simulate(program).peak_activations;
  for (size_t rank = 0; rank < 2; ++rank) {
    const Lane& lane = timeline.lanes[rank];
    EXPECT_EQ(lane.memory_before, 2000);
    EXPECT_EQ(lane.memory.back(), 2000);
    EXPECT_LE(*std::ranges::max_element(lane.memory), 2000 + peaks[rank]);
    EXPECT_GT(*std::ranges::max_element(lane.memory), 2000 + 2);
  }
}

TEST(PlanPicture, IsInSecondsWhereTheyAreMeasured) {
  Job job;
  job.name = "chain";
  job.input = TensorSpec{{64}};
  for (int i = 0; i < 4; ++i) {
    job.layers.push_back(MakeLayer("Linear", {64, 64}, {}, {}, "net.lua:1"));
  }
  job.parallel.pipe = 2;
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0.9);
  const Measure measure = [](const MeasureTask& task) {
    Profile profile;
    profile.layers.assign(task.job->layers.size(),
                          {.forward = 3, .input_grad = 0, .weight_grad = 1});
    return profile;
  };
  const Plan guessed = MakePlan(job, {}, nullptr);
  const Picture units = PlanPicture(job, guessed, ForecastHere(job, guessed, nullptr));
  EXPECT_EQ(units.cost_unit, "FLOP");
  EXPECT_FALSE(units.timelines[0].in_seconds);
  EXPECT_EQ(units.timelines[0].span(), 15) << "1f1b of two stages, each pass takes 1";
  job.partition.method = "time";
  const Plan timed = MakePlan(job, {.measure = measure}, nullptr);
  const Picture seconds = PlanPicture(job, timed, ForecastHere(job, timed, nullptr));
  EXPECT_EQ(seconds.cost_unit, "s");
  EXPECT_EQ(seconds.stages[0].cost, 2 * 4);
  EXPECT_TRUE(seconds.timelines[0].in_seconds);
  EXPECT_GE(seconds.timelines[0].span(), 4 * 2 * 4);
}

/// Three steps that begin at 10, 20 and 40 and take 3, 9 and 5.
Trace ThreeSteps() {
  Trace trace;
  trace.ranks.resize(2);
  trace.ranks[1].rank = 1;
  const double begins[] = {10, 20, 40}, takes[] = {3, 9, 5};
  for (int64_t step = 0; step < 3; ++step) {
    const double t = begins[step];
    trace.ranks[0].actions.push_back({step + 7, schedule::ParseAction("0F0"), t, 0, t + 1, 500});
    trace.ranks[0].actions.push_back(
        {step + 7, schedule::ParseAction("0B0"), t + 1, 1, t + takes[step], 400 + step});
    trace.ranks[1].actions.push_back({step + 7, schedule::ParseAction("1F0"), t, 1, t + 2, 0});
  }
  return trace;
}

TEST(MeasuredTimeline, IsTheStepOfMedianDuration) {
  const Timeline timeline = MeasuredTimeline(ThreeSteps());
  EXPECT_EQ(timeline.name, "measured, step 9");
  EXPECT_TRUE(timeline.in_seconds);
  EXPECT_EQ(timeline.span(), 5);
  ASSERT_EQ(timeline.lanes.size(), 2u);
  const Lane& first = timeline.lanes[0];
  EXPECT_EQ(first.times[0].start, 0);
  EXPECT_EQ(first.times[1].start, 2) << "after it has waited";
  EXPECT_EQ(first.times[1].end, 5);
  EXPECT_EQ(first.memory_before, 401) << "the step before left it so";
  EXPECT_THAT(first.memory, ElementsAre(500, 402));
  EXPECT_EQ(timeline.lanes[1].rank, 1);
  EXPECT_TRUE(timeline.lanes[1].memory.empty()) << "nobody knew";
}

TEST(MeasuredTimeline, ARankWithoutActionsIsAnEmptyLane) {
  Trace trace = ThreeSteps();
  trace.ranks.push_back({.rank = 2, .clock_error = 0, .actions = {}});
  EXPECT_TRUE(MeasuredTimeline(trace).lanes[2].actions.empty());
}

}  // namespace
}  // namespace strata::picture
