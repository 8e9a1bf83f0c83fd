#include "engine/schedule/costs/join_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "engine/schedule/check/checker.h"
#include "engine/schedule/lower/lowering.h"
#include "engine/schedule/simulate/simulator.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"

namespace strata::schedule {
namespace {

using testing::AnyGenerated;
using testing::RandomProgram;

Program Parse(const std::vector<std::vector<std::string>>& rows) {
  return ParseProgram(rows, ParseOptions());
}

/// The micro-batches that end a group on `stage`, ascending.
std::vector<int> EndsOf(const Program& program, int stage, int joined) {
  std::vector<int> all(program.stage_ranks.size(), 1);
  all[stage] = joined;
  const std::vector<bool> ends = GroupEnds(program, all)[stage];
  std::vector<int> numbers;
  for (int m = 0; m < static_cast<int>(ends.size()); ++m) {
    if (ends[m]) numbers.push_back(m);
  }
  return numbers;
}

TEST(GroupEnds, AreFewAndEven) {
  const Program six = Generate("1f1b", {.ranks = 2, .stages_per_rank = 1, .micro_batches = 6});
  EXPECT_THAT(EndsOf(six, 1, 1), ::testing::IsEmpty());
  EXPECT_THAT(EndsOf(six, 1, 2), ::testing::ElementsAre(1, 3, 5));
  EXPECT_THAT(EndsOf(six, 1, 4), ::testing::ElementsAre(2, 5)) << "3 and 3, not 4 and 2";
  EXPECT_THAT(EndsOf(six, 1, 5), ::testing::ElementsAre(2, 5));
  EXPECT_THAT(EndsOf(six, 1, 6), ::testing::ElementsAre(5));
  EXPECT_THAT(EndsOf(six, 1, 100), ::testing::ElementsAre(5));
}

TEST(GroupEnds, FollowTheRowsOrderOfWeightGradients) {
  const Program program = Parse({{"0F0", "0F1", "0F2", "0I2", "0I1", "0B0", "0W2", "0W1"}});
  EXPECT_THAT(EndsOf(program, 0, 2), ::testing::ElementsAre(1, 2)) << "{0, 2}, {1}";
}

TEST(SplitGroupEnds, LetsTheGradientGoBeforeTheProducts) {
  const Program program =
      Parse({{"0F0", "0F1", "", "0B0", "0B1"}, {"", "1F0", "1B0", "1F1", "1B1"}});
  const Program split = SplitGroupEnds(program, {2, 2});
  EXPECT_EQ(ToCsv(split), "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1I1,1W1\n");
  EXPECT_THAT(ToCsv(AddCommunication(split)), ::testing::HasSubstr("1I1,1SEND_B1,1W1"));
  EXPECT_EQ(SplitGroupEnds(program, {2, 1}), program);
}

TEST(SplitGroupEnds, TakesOverlapsApart) {
  Program program = Generate("dualpipev", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 8});
  const Program split = SplitGroupEnds(program, {1, 2, 1, 1});
  const auto has = [&](const char* text) { return ToCsv(split).find(text) != std::string::npos; };
  EXPECT_NE(split, program);
  EXPECT_TRUE(has("OVERLAP_F_B"));
  EXPECT_EQ(Check(split).Report(), "");
}

/// Any sizes of groups.
std::vector<int> AnyJoined(const Program& program) {
  std::vector<int> joined;
  for (int s = 0; s < program.stages(); ++s) joined.push_back(*rc::gen::inRange(1, 8));
  return joined;
}

// What is right stays right, costs no time, and each group is as large as it may be at most.
void ExpectLaws(const Program& program) {
  const std::vector<int> joined = AnyJoined(program);
  const Program split = SplitGroupEnds(program, joined);
  RC_LOG() << ToGrid(program) << ToGrid(split);
  RC_ASSERT(Check(split).Report() == "");
  RC_ASSERT(Check(Lower(split), {.lowered = true}).Report() == "");
  const auto ends = GroupEnds(program, joined);
  RC_ASSERT(GroupEnds(split, joined) == ends);
  RC_ASSERT(GroupEnds(Lower(split), joined) == ends);
  RC_ASSERT(SplitGroupEnds(split, joined) == split);
  RC_ASSERT(Simulate(split).makespan <= Simulate(program).makespan);
  if (!program.is_training) RC_ASSERT(split == program);
  std::vector<int> open(joined.size());
  for (const auto& row : program.rows) {
    for (const Action& action : row) {
      for (const Action& part : Parts(action)) {
        if (!GivesWeightGrad(part.kind) || joined[part.stage] == 1) continue;
        RC_ASSERT(++open[part.stage] <= joined[part.stage]);
        if (ends[part.stage][part.micro_batch]) open[part.stage] = 0;
      }
    }
  }
  RC_ASSERT(std::ranges::all_of(open, [](int count) { return count == 0; }));
}

TEST(SplitGroupEnds, KeepsTheLawsOfRandomPrograms) {
  EXPECT_TRUE(rc::check([] { ExpectLaws(RandomProgram::Any()); }));
}

TEST(SplitGroupEnds, KeepsTheLawsOfNamedPrograms) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = AnyGenerated();
    ExpectLaws(Generate(name, sizes));
  }));
}

TEST(SplitGroupEnds, LeavesWhatIsNotThereToTheChecker) {
  Program wrong = Parse({{"0F0", "0B0"}, {"1F0", "1B0", "1B7"}});
  wrong.micro_batches = 1;
  EXPECT_NE(Check(SplitGroupEnds(wrong, {2, 2})).Report(), "");
}

}  // namespace
}  // namespace strata::schedule
