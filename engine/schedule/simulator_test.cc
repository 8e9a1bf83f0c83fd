#include "engine/schedule/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::AllOf;
using testing::AnyCostList;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using testing::FromRows;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;

TEST(Simulate, RunsEachActionAsSoonAsItCan) {
  const auto result = Simulate(Generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  // Rank 0: 0F0 at 0, 0F1 at 1, 0B0 at 4, 0B1 at 7. Rank 1: 1F0 at 1, 1B0 at 2, then 1F1, 1B1.
  std::vector<double> starts;
  const Program program = Generate("1f1b", {.ranks = 2, .micro_batches = 2});
  for (size_t i = 0; i < program.rows[0].size(); ++i) {
    if (program.rows[0][i].kind != Kind::kIdle) starts.push_back(result.times[0][i].start);
  }
  EXPECT_THAT(starts, ElementsAre(0, 1, 4, 7));
  EXPECT_EQ(result.makespan, 9);
  EXPECT_THAT(result.busy, ElementsAre(6, 6));
  EXPECT_THAT(result.bubble, DoubleNear(1.0 / 3, kTolerance));
  EXPECT_THAT(result.peak_activations, ElementsAre(2, 1));
}

TEST(Simulate, UsesTheCostsOfStagesAndKinds) {
  const Program program = FromRows({"0F0 0R0 0I0 0W0 0F1 0B1"});
  const auto total = [&](const Costs& costs) { return Simulate(program, costs).makespan; };
  EXPECT_EQ(total({}), 7);
  EXPECT_EQ(total({.forward = {2}}), 2 + 2 + 2 + 4);
  EXPECT_EQ(total({.forward = {2}, .recompute = {10}}), 2 + 10 + 2 + 2 + 2);
  EXPECT_EQ(total({.input_grad = {5}, .weight_grad = {3}}), 1 + 1 + 8 + 1 + 8);
  EXPECT_EQ(total({.backward = {9}}), 1 + 1 + 2 + 1 + 9);
  EXPECT_EQ(total({.action = 0.5}), 7 + 6 * 0.5) << "B is one action";
  const Program two = FromRows({"0F0 0B0", "1F0 1B0"});
  EXPECT_EQ(Simulate(two, {.forward = {1, 10}, .weight_grad = {0}}).makespan, 1 + 10 + 1 + 1);
}

TEST(Simulate, MessagesOfALinkFollowEachOther) {
  // Three forwards of 1 each; a message keeps the link for 5 and arrives 2 after that.
  const Program program = FromRows({"0F0 0F1 0F2", "1F0 1F1 1F2"});
  const auto result = Simulate(program, {.forward = {1}, .comm = 2, .transfer = {5}});
  EXPECT_THAT(result.times[1], ElementsAre(FieldsAre(8, 9), FieldsAre(13, 14), FieldsAre(18, 19)));
  const auto lowered = Simulate(Lower(program), {.forward = {1}, .comm = 2, .transfer = {5}});
  EXPECT_EQ(lowered.makespan, result.makespan);
}

TEST(Simulate, BothDirectionsOfALinkAreFreeOfEachOther) {
  // The time of a message depends on the boundary that it crosses, in both directions.
  const Program program = FromRows({"0F0 0B0", "1F0 1B0", "2F0 2B0"});
  EXPECT_EQ(Simulate(program, {.transfer = {5, 7, 100}}).makespan, 3 * 1 + 3 * 2 + 2 * (5 + 7));
}

TEST(Simulate, ASlowLinkIsLateForItsOwnMessages) {
  // The second link has 4 more latency than the first; neither is kept busy.
  const Program program = FromRows({"0F0 0F1", "1F0 1F1", "2F0 2F1"});
  const auto result = Simulate(program, {.forward = {1}, .comm = 1, .latency = {0, 4, 100}});
  EXPECT_THAT(result.times[1], ElementsAre(FieldsAre(2, 3), FieldsAre(3, 4)));
  EXPECT_THAT(result.times[2], ElementsAre(FieldsAre(8, 9), FieldsAre(9, 10)));
}

TEST(Simulate, RefusesTransfersThatAreNotOnePerStage) {
  const Program program = FromRows({"0F0 0B0", "1F0 1B0"});
  EXPECT_THAT(ConfigErrorOf([&] {
                Simulate(program, {.transfer = {5, 7, 9}});
              }),
              HasSubstr("the cost of transfer has 3 entries for 2 stages; expected one or one"));
  EXPECT_THAT(ConfigErrorOf([&] { Simulate(program, {.transfer = {-1}}); }),
              HasSubstr("the cost of transfer must be a number of at least 0, not -1"));
}

TEST(Simulate, AnOverlapCostsTheSumUnlessGiven) {
  const Program program = FromRows({"0F0 (0F1;0B0)OVERLAP_F_B 0B1"});
  EXPECT_EQ(Simulate(program).makespan, 1 + 3 + 2);
  EXPECT_EQ(Simulate(program, {.overlap = {2.5}}).makespan, 1 + 2.5 + 2);
  EXPECT_EQ(Simulate(program, {.action = 0.5}).makespan, 6 + 4 * 0.5);
  EXPECT_EQ(Simulate(program, {.overlap = {2.5}, .action = 0.5}).makespan, 5.5 + 4 * 0.5);
}

TEST(Simulate, ALatencyOccupiesNobody) {
  const Program program = Generate("inference", {.ranks = 2, .micro_batches = 3});
  const auto result = Simulate(program, {.comm = 10});
  EXPECT_EQ(result.makespan, 1 + 10 + 3);
  EXPECT_THAT(result.busy, ElementsAre(3, 3));
  // Messages between stages on one rank have no latency.
  EXPECT_EQ(Simulate(FromRows({"0F0 1F0 1B0 0B0"}), {.comm = 10}).makespan, 6);
}

TEST(Simulate, WhatComesFirstHidesBehindWaiting) {
  const Program program = FromRows({"0F0 0B0", "1F0 1B0"});
  EXPECT_EQ(Simulate(program).makespan, 6);
  EXPECT_EQ(Simulate(program, {.begin = {0, 1}}).makespan, 6);
  EXPECT_EQ(Simulate(program, {.begin = {2, 1}}).makespan, 8);
  EXPECT_EQ(Simulate(program, {.begin = {0, 4}}).makespan, 9);
  EXPECT_EQ(Simulate(program, {.begin = {2, 4}}).busy, (std::vector<double>{5, 7}));
}

TEST(Simulate, TheEndsOfAStepCostWhatIsSaid) {
  const Program program = Lower(Generate("gpipe", {.ranks = 1, .micro_batches = 2}), {{0}});
  EXPECT_EQ(Simulate(program).makespan, 6);
  EXPECT_EQ(Simulate(program, {.reduce = {10}, .step = {100}}).makespan, 6 + 20 + 100);
}

TEST(Simulate, ALoweredMessageLeavesAtItsSend) {
  const std::vector<std::string> prompt = {"0F0 0SEND_F0 0F1 0SEND_F1",
                                           "1RECV_F0 1F0 1RECV_F1 1F1"};
  const std::vector<std::string> late = {"0F0 0F1 0SEND_F0 0SEND_F1", "1RECV_F0 1F0 1RECV_F1 1F1"};
  EXPECT_EQ(Simulate(FromRows(prompt)).makespan, 3);
  EXPECT_EQ(Simulate(FromRows(late)).makespan, 4);
}

// For random P, M and costs that are the same on all stages, both schedules have the bubble
// (P-1)(F+B). With equal work per rank its share of the makespan is (P-1)/(M+P-1).
TEST(Simulate, BubblesAreThoseOfTheory) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 12), M = *rc::gen::inRange(1, 30);
    const Costs costs{
        .forward = AnyCostList(1), .input_grad = AnyCostList(1), .weight_grad = AnyCostList(1)};
    const double F = costs.forward[0], B = costs.input_grad[0] + costs.weight_grad[0];
    for (const char* name : {"gpipe", "1f1b"}) {
      const auto result = Simulate(Generate(name, {.ranks = P, .micro_batches = M}), costs);
      RC_ASSERT(result.makespan == (M + P - 1) * (F + B));
      RC_ASSERT(std::abs(result.bubble - (P - 1.0) / (M + P - 1)) < kTolerance);
    }
    const auto forward = Simulate(Generate("inference", {.ranks = P, .micro_batches = M}), costs);
    RC_ASSERT(forward.makespan == (M + P - 1) * F);
  }));
}

TEST(Simulate, NothingToDoIsNoBubble) {
  const Program program = FromRows({"0F0"});
  const auto result = Simulate(program, {.forward = {0}});
  EXPECT_EQ(result.makespan, 0);
  EXPECT_EQ(result.bubble, 0);
}

TEST(Simulate, RefusesProgramsThatCannotFinish) {
  EXPECT_THAT(ConfigErrorOf([] {
                Simulate(FromRows({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"}));
              }),
              AllOf(HasSubstr("cannot finish"),
                    HasSubstr("rank 0 waits for ever at 0B0: 0F0 [0B0] 0F1 0B1"),
                    HasSubstr("rank 1 waits for ever at 1F1")));
  EXPECT_THAT(ConfigErrorOf([] {
                Simulate(FromRows({"0B0", "1F0"}));
              }),
              HasSubstr("cannot finish"));
  EXPECT_THAT(ConfigErrorOf([] { Simulate(FromRows({"0F0 3F0"}, {.stage_ranks = {0}})); }),
              HasSubstr("3F0 is of a stage that does not exist"));
  for (const char* row : {"0F0 0SEND_F0", "0F0 1F0 0SEND_F0"}) {
    EXPECT_THAT(ConfigErrorOf([&] { Simulate(FromRows({row})); }),
                HasSubstr("a send has no receive on another rank"))
        << row;
  }
}

TEST(Simulate, RefusesWrongCosts) {
  const Program program = Generate("gpipe", {.ranks = 3, .micro_batches = 2});
  const auto error = [&](const Costs& costs) {
    return ConfigErrorOf([&] { Simulate(program, costs); });
  };
  EXPECT_THAT(error({.forward = {1, 2}}),
              HasSubstr("the cost of F has 2 entries for 3 stages; expected one or one per stage"));
  EXPECT_THAT(error({.weight_grad = {}}), HasSubstr("the cost of W has 0 entries"));
  EXPECT_THAT(error({.input_grad = {1, -2, 1}}), HasSubstr("the cost of I must be a number of at "
                                                           "least 0, not -2"));
  EXPECT_THAT(error({.comm = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("comm"));
  EXPECT_THAT(error({.step = {std::numeric_limits<double>::infinity()}}), HasSubstr("step"));
}

}  // namespace
}  // namespace strata::schedule
