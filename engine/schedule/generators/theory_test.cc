// Tests the bubbles and the memory that the papers give for each schedule, for all sizes, and
// compares with torch's own schedules.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/schedule/checker.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::AnyCostList;
using testing::AnyCosts;
using testing::AnySizes;

int Max(const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); }
double Max(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

/// Random sizes with at least per_rank * ranks - less micro-batches, which fill the pipe.
Sizes FullPipe(const std::string& name, int per_rank, int less) {
  Sizes sizes = AnySizes(name);
  sizes.micro_batches += std::max(0, per_rank * sizes.ranks - less - 1);
  return sizes;
}

/// Random costs that are the same on all stages.
Costs AnyEvenCosts() {
  return {.forward = AnyCostList(1), .input_grad = AnyCostList(1), .weight_grad = AnyCostList(1)};
}

// The bubble is (P-1)(F+B)/v, where F and B are those of a whole rank with its v stages.
TEST(Theory, InterleavingDividesTheBubble) {
  EXPECT_TRUE(rc::check([] {
    const std::string name = *rc::gen::element<std::string>("interleaved_1f1b", "looped_bfs");
    const Sizes sizes = FullPipe(name, 1, 0);
    const Costs costs = AnyEvenCosts();
    const double stage = costs.forward[0] + costs.input_grad[0] + costs.weight_grad[0];
    const auto result = Simulate(Generate(name, sizes), costs);
    const int P = sizes.ranks, v = sizes.stages_per_rank, M = sizes.micro_batches;
    RC_ASSERT(result.makespan == (M * v + P - 1) * stage);
  }));
}

TEST(Theory, MemoryOfLoops) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = FullPipe("interleaved_1f1b", 1, 0);
    const int P = sizes.ranks, v = sizes.stages_per_rank, M = sizes.micro_batches;
    // P(v-1) + 2(P-1) + 1 activations of a stage, of which a rank has v; more if P does not divide
    // M.
    const int group = (M + M / P - 1) / (M / P);
    RC_ASSERT(Max(PeakActivations(Generate("interleaved_1f1b", sizes))) ==
              std::min(group * (v - 1) + 2 * (P - 1) + 1, v * M));
    RC_ASSERT(Max(PeakActivations(Generate("looped_bfs", sizes))) == v * M);
  }));
}

// The bubbles are (P-1)(F+I-W) and (P-1)(F+I-2W), if F and I are at least as long as W, which fills
// the time between them.
TEST(Theory, ZeroBubbleH1AndH2) {
  EXPECT_TRUE(rc::check([] {
    const bool is_h2 = *rc::gen::arbitrary<bool>();
    const int reach = is_h2 ? 2 : 1;
    const std::string name = is_h2 ? "zb_h2" : "zb_h1";
    const Sizes sizes = FullPipe(name, reach, reach - 1);
    Costs costs = AnyEvenCosts();
    const double F = costs.forward[0], I = costs.input_grad[0];
    costs.weight_grad = {std::min({costs.weight_grad[0], F, I})};
    const double W = costs.weight_grad[0];
    const auto result = Simulate(Generate(name, sizes), costs);
    const int P = sizes.ranks;
    RC_ASSERT(Max(result.wait) == (P - 1) * (F + I - reach * W));
    RC_ASSERT(Max(result.peak_activations) == reach * (P - 1) + 1);
  }));
}

// With equal costs no program can be faster, since the last rank cannot start before step P-1.
TEST(Theory, SplitBackwardsReachTheBound) {
  EXPECT_TRUE(rc::check([] {
    const std::string name =
        *rc::gen::element<std::string>("zb_h1", "zb_h2", "interleaved_zb", "zbv");
    const Sizes sizes = FullPipe(name, 2, 1);
    const int P = sizes.ranks, v = sizes.stages_per_rank, M = sizes.micro_batches;
    RC_ASSERT(Simulate(Generate(name, sizes)).makespan == 3 * v * M + P - 1);
  }));
}

TEST(Theory, ZbvHasNoBubble) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = FullPipe("zbv", 2, 1);
    const auto result = Simulate(Generate("zbv", sizes));
    RC_ASSERT(Max(result.wait) == 0);
    RC_ASSERT(Max(result.peak_activations) == std::min(2 * sizes.ranks, 2 * sizes.micro_batches));
  }));
}

// The bubbles are at most P/2M and 2P/3M. The activations are at most (P+2)/2 and (P+4)/3 of a
// rank's whole share, which is two stages.
TEST(Theory, VHalfAndVMin) {
  EXPECT_TRUE(rc::check([] {
    const bool is_half = *rc::gen::arbitrary<bool>();
    const std::string name = is_half ? "v_half" : "v_min";
    const Sizes sizes = AnySizes(name);
    const double P = sizes.ranks, M = sizes.micro_batches;
    const auto result = Simulate(Generate(name, sizes));
    RC_ASSERT(result.bubble <= (is_half ? P / (2 * M) : 2 * P / (3 * M)));
    RC_ASSERT(Max(result.peak_activations) <= (is_half ? P + 2 : 2 * (P + 4) / 3));
  }));
}

// The bubble is (P-1)(F&B + B - 3W), where F&B, the cost of an overlap, is here F+B.
TEST(Theory, DualPipeV) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = AnySizes("dualpipev");
    const int P = sizes.ranks, M = sizes.micro_batches;
    const auto result = Simulate(Generate("dualpipev", sizes));
    RC_ASSERT(result.makespan == 6 * M + 2 * (P - 1));
    RC_ASSERT(Max(result.peak_activations) <= 2 * P + 1);
  }));
}

// Too few micro-batches to fill the pipe: the schedule is no slower than one micro-batch after the
// other.
TEST(Theory, FewMicroBatches) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    if (name == "inference") return;
    Sizes one = sizes;
    one.micro_batches = 1;
    if (name == "dualpipev") return;
    RC_ASSERT(Simulate(Generate(name, sizes)).makespan <=
              sizes.micro_batches * Simulate(Generate(name, one)).makespan);
  }));
}

const std::map<std::string, std::string>& NamesOfTorch() {
  static const std::map<std::string, std::string> names = {
      {"ScheduleInterleaved1F1B", "interleaved_1f1b"},
      {"ScheduleLoopedBFS", "looped_bfs"},
      {"ScheduleInterleavedZeroBubble", "interleaved_zb"},
      {"ScheduleZBVZeroBubble", "zbv"},
      {"ScheduleDualPipeV", "dualpipev"},
  };
  return names;
}

std::vector<Program> TorchsPrograms() {
  std::vector<Program> programs;
  const auto golden = Golden("torch_pipelining");
  for (const auto& entry : golden["schedules"]) programs.push_back(testing::FromTorch(entry));
  return programs;
}

Program OursFor(const Program& theirs) {
  return Generate(NamesOfTorch().at(theirs.name),
                  {.ranks = theirs.ranks(),
                   .stages_per_rank = theirs.stages() / theirs.ranks(),
                   .micro_batches = theirs.micro_batches});
}

TEST(Torch, ItsOrdersAreRightAndRun) {
  for (const Program& theirs : TorchsPrograms()) {
    EXPECT_EQ(Check(theirs).Report(), "") << theirs.name;
    EXPECT_EQ(Simulate(LowerAndCheck(theirs)).makespan, Simulate(theirs).makespan) << theirs.name;
  }
}

TEST(Torch, OursHaveItsOrder) {
  const auto actions_of = [](const Program& program) {
    std::vector<std::string> rows;
    for (const auto& row : program.rows) {
      std::string text;
      for (const Action& action : row) {
        if (action.kind != Kind::kIdle) text += ToText(action) + ' ';
      }
      rows.push_back(text);
    }
    return rows;
  };
  int descending = 0;
  for (const Program& theirs : TorchsPrograms()) {
    const Program ours = OursFor(theirs);
    EXPECT_EQ(ours.stage_ranks, theirs.stage_ranks) << theirs.name;
    // Torch's breadth-first schedule runs backwards in descending order; Strata's never do.
    EXPECT_EQ(AccumulatesInOrder(theirs), theirs.name != "ScheduleLoopedBFS");
    if (!AccumulatesInOrder(theirs)) {
      ++descending;
      continue;
    }
    EXPECT_EQ(actions_of(ours), actions_of(theirs)) << theirs.name;
  }
  EXPECT_EQ(descending, 1);
}

TEST(Torch, OursAreNeverSlower) {
  static const std::vector<Program> programs = TorchsPrograms();
  ASSERT_EQ(programs.size(), 9u);
  for (const Program& theirs : programs) {
    EXPECT_LE(Simulate(OursFor(theirs)).makespan, Simulate(theirs).makespan) << theirs.name;
  }
  EXPECT_TRUE(rc::check([] {
    const Program& theirs = programs[*rc::gen::inRange<size_t>(0, programs.size())];
    const Costs costs = AnyCosts(theirs.stages());
    RC_ASSERT(Simulate(OursFor(theirs), costs).makespan <= Simulate(theirs, costs).makespan);
  }));
}

}  // namespace
}  // namespace strata::schedule
