#include "engine/schedule/row_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::ElementsAre;
using testing::FromRows;

/// The steps of the rank's row that change the memory: "0F0+8".
std::vector<std::string> Changes(const Program& program, int rank, const Held& held) {
  std::vector<std::string> changes;
  RowWalk(program).Over(rank, [&](const Step& step) {
    const int64_t change = step.Change(held);
    if (change != 0) changes.push_back(Str(step.part, change > 0 ? "+" : "", change));
  });
  return changes;
}

/// The steps of the rank's row with a sign before and after each, as ".0F0=": where it takes its
/// message from and where it gives its own to. '.' is kNone, '=' the same rank, '~' another rank.
std::vector<std::string> Passages(const Program& program, int rank) {
  const auto sign = [](Passage passage) { return ".=~"[static_cast<int>(passage)]; };
  std::vector<std::string> passages;
  RowWalk(program).Over(rank, [&](const Step& step) {
    passages.push_back(Str(sign(step.takes()), step.part, sign(step.gives())));
  });
  return passages;
}

constexpr Held kHeld{.kept = 8, .recomputed = 30, .deferred = 3};

TEST(RowWalk, KeepsFromForwardToBackwardAndDefersToTheWeightGradient) {
  EXPECT_THAT(Changes(FromRows({"0F0 0B0"}), 0, kHeld), ElementsAre("0F0+8", "0B0-8"));
  EXPECT_THAT(Changes(FromRows({"0F0 0I0 0W0"}), 0, kHeld), ElementsAre("0F0+8", "0I0-5", "0W0-3"));
  EXPECT_THAT(Changes(FromRows({"0F0 (0F1;0B0)OVERLAP_F_B 0B1"}), 0, kHeld),
              ElementsAre("0F0+8", "0F1+8", "0B0-8", "0B1-8"));
}

TEST(RowWalk, FreesWhatWasRecomputedOnlyWhereItWas) {
  EXPECT_THAT(Changes(FromRows({"0F0 0F1 0R0 0B0 0B1"}), 0, kHeld),
              ElementsAre("0F0+8", "0F1+8", "0R0+30", "0B0-38", "0B1-8"));
  EXPECT_THAT(Changes(FromRows({"0F0 0R0 0I0 0W0"}), 0, kHeld),
              ElementsAre("0F0+8", "0R0+30", "0I0-35", "0W0-3"));
}

TEST(RowWalk, TellsWhereWhatPassesIs) {
  const Program program = FromRows({"0F0 1F0 1B0 0B0", "2F0 2B0"});
  EXPECT_THAT(Passages(program, 0), ElementsAre(".0F0=", "=1F0~", "~1B0=", "=0B0."));
  EXPECT_THAT(Passages(program, 1), ElementsAre("~2F0.", ".2B0~"));
}

TEST(RowWalk, LeavesOutWhatDoesNotExist) {
  Program program = FromRows({"0F0 . 9F0 0F7 0B0"});
  program.stage_ranks = {0};
  program.micro_batches = 1;
  std::vector<int> positions;
  RowWalk(program).Over(0, [&](const Step& step) { positions.push_back(step.position); });
  EXPECT_THAT(positions, ElementsAre(0, 4));
}

TEST(RowWalk, HoldsNothingInTheEnd) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    if (name == "inference") return;
    Program program = Generate(name, sizes);
    if (*rc::gen::arbitrary<bool>()) program = AddRecomputation(std::move(program), {0});
    int64_t now = 0;
    RowWalk(program).OverAll([&](const Step& step) {
      now += step.Change(kHeld);
      RC_ASSERT(now >= 0);
    });
    RC_ASSERT(now == 0);
  }));
}

}  // namespace
}  // namespace strata::schedule
