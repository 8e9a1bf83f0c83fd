#include "engine/schedule/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>

#include "engine/schedule/checker.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/testing.h"

namespace strata::schedule {
namespace {

using testing::AnyCosts;
using testing::ErrorOf;
using ::testing::HasSubstr;

int Largest(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

Sizes AnySmallSizes() {
  return {.ranks = *rc::gen::inRange(1, 5),
          .stages_per_rank = *rc::gen::inRange(1, 4),
          .micro_batches = *rc::gen::inRange(1, 9)};
}

TEST(Search, GivesARightProgramWithinTheMemory) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = AnySmallSizes();
    const SearchOptions options = {AnyCosts(sizes.ranks * sizes.stages_per_rank),
                                   sizes.stages_per_rank + *rc::gen::inRange(0, 6)};
    const SearchResult result = Search(sizes, options);
    RC_LOG() << result.origin << '\n' << ToGrid(result.program);
    RC_ASSERT(Check(result.program).Report() == "");
    RC_ASSERT(AccumulatesInOrder(result.program));
    LowerAndCheck(result.program);
    RC_ASSERT(Largest(PeakActivations(result.program)) <= options.memory);
    RC_ASSERT(Simulate(result.program, options.costs).makespan == result.simulation.makespan);
    RC_ASSERT(result.bound <= result.simulation.makespan * (1 + 1e-12));
  }));
}

TEST(Search, IsNeverSlowerThanANamedSchedule) {
  EXPECT_TRUE(rc::check([] {
    const std::string name = *rc::gen::elementOf(testing::Names());
    if (name == "inference") return;
    Sizes sizes = AnySmallSizes();
    if (!Fits(name, sizes)) sizes = testing::SizesFor(name, sizes.ranks, sizes.micro_batches);
    const Costs costs = AnyCosts(sizes.ranks * sizes.stages_per_rank);
    const Simulation named = Simulate(Generate(name, sizes), costs);
    const SearchResult result = Search(sizes, {costs, Largest(named.peak_activations)});
    RC_ASSERT(result.simulation.makespan <= named.makespan);
  }));
}

// With equal costs nothing but the way to the last rank is lost.
TEST(Search, HasNoBubbleForEqualCosts) {
  for (int ranks = 1; ranks < 6; ++ranks) {
    for (int stages_per_rank : {1, 2}) {
      const Sizes sizes{ranks, stages_per_rank, 2 * ranks + 1};
      const SearchResult result = Search(sizes);
      EXPECT_EQ(result.simulation.makespan, 3 * stages_per_rank * sizes.micro_batches + ranks - 1);
      const auto& wait = result.simulation.wait;
      EXPECT_EQ(*std::max_element(wait.begin(), wait.end()), 0);
    }
  }
}

TEST(Search, BoundIsReachedByOneRankAndByOneMicroBatchOnEach) {
  EXPECT_EQ(LowerBound({1, 1, 4}, {}), 12);
  EXPECT_EQ(LowerBound({4, 1, 1}, {.comm = 1}), 8 + 6);
  EXPECT_EQ(LowerBound({2, 1, 10}, {}), 30 + 0.5);
}

TEST(Search, NamesTheLeastMemory) {
  EXPECT_THAT(ErrorOf([] { Search({2, 3, 4}, {{}, 2}); }), HasSubstr("it needs 3"));
  EXPECT_THAT(ErrorOf([] {
                Search({2, 1, 4}, {{.forward = {1, 2, 3}}, 2});
              }),
              HasSubstr("3 entries for 2 stages"));
}

TEST(Search, IsTheScheduleAuto) {
  const Program program = Generate("auto", {.ranks = 3, .micro_batches = 6});
  EXPECT_EQ(program.name, "auto");
  EXPECT_EQ(Check(program).Report(), "");
  EXPECT_EQ(Simulate(program).makespan, 3 * 6 + 2);
}

}  // namespace
}  // namespace strata::schedule
