#include "launcher/process/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kHour = 3600;

Outcome Lost(const std::string& cause = "rank 1 was ended by signal 9", int code = 137) {
  return {.exit_code = code, .cause = cause, .may_pass = true};
}

TEST(RestartsTest, WithoutRestartsNothingIsSaidOfThem) {
  Restarts restarts(0, kHour);
  EXPECT_FALSE(restarts.Again(Lost("gone"), 7, 0));
  EXPECT_EQ(restarts.outcome().cause, "gone");
  EXPECT_EQ(restarts.outcome().exit_code, 137);
}

TEST(RestartsTest, WhatEndsWellEnds) {
  Restarts restarts(3, kHour);
  EXPECT_FALSE(restarts.Again({}, 10, 0));
  EXPECT_EQ(restarts.outcome().exit_code, 0);
}

TEST(RestartsTest, WhatFailsEachTimeIsNotTriedAgain) {
  Restarts restarts(3, kHour);
  EXPECT_FALSE(restarts.Again({.exit_code = 2, .cause = "no such key"}, 0, 0));
  EXPECT_EQ(restarts.outcome().cause, "no such key");
}

TEST(RestartsTest, AJobThatComesFurtherBeginsAgainUntilRestartsAreUsedUp) {
  Restarts restarts(2, kHour);
  EXPECT_TRUE(restarts.Again(Lost(), 10, 0));
  EXPECT_EQ(restarts.Count(), "restart 1 of 2");
  EXPECT_TRUE(restarts.Again(Lost(), 20, 1));
  EXPECT_EQ(restarts.Count(), "restart 2 of 2");
  EXPECT_FALSE(restarts.Again(Lost("the third"), 30, 2));
  EXPECT_THAT(restarts.outcome().cause,
              AllOf(StartsWith("the third"), HasSubstr("2 times already (--max_restarts)")));
}

TEST(RestartsTest, OnlyThoseWithinTheWindowCount) {
  Restarts restarts(1, kHour);
  EXPECT_TRUE(restarts.Again(Lost(), 10, 0));
  EXPECT_TRUE(restarts.Again(Lost(), 20, kHour + 1));
  EXPECT_FALSE(restarts.Again(Lost(), 30, 2 * kHour));
}

TEST(RestartsTest, RestartsWithoutProgressEndWithTheFirstCause) {
  Restarts restarts(100, kHour);
  EXPECT_TRUE(restarts.Again(Lost("a passing fault"), 10, 0));
  EXPECT_TRUE(restarts.Again(Lost("the disk is full", 1), 30, 1));
  EXPECT_TRUE(restarts.Again(Lost("rank 1 was killed"), 30, 2));
  EXPECT_FALSE(restarts.Again(Lost("rank 2 was killed"), 25, 3));
  EXPECT_EQ(restarts.outcome().exit_code, 1);
  EXPECT_EQ(restarts.outcome().cause,
            "the disk is full\nthe job was started again 2 times and did not come further than "
            "step 30");
}

TEST(RestartsTest, AMachineThatIsAwayIsWaitedFor) {
  const Outcome away = {.exit_code = 1, .cause = "host2 is away", .is_early = true};
  Restarts restarts(9, kHour);
  EXPECT_TRUE(restarts.Again(Lost(), 10, 0));
  EXPECT_EQ(restarts.Pause(), 0);
  for (const double pause : {1, 2, 4, 8, 16, 32, 60}) {
    EXPECT_TRUE(restarts.Again(away, 10, 1));
    EXPECT_EQ(restarts.Pause(), pause);
  }
  EXPECT_TRUE(restarts.Again(Lost("rank 1 was killed"), 20, 2)) << "it is back";
  EXPECT_EQ(restarts.Pause(), 0);
  EXPECT_FALSE(restarts.Again(away, 20, 3));
  EXPECT_EQ(restarts.outcome().exit_code, 137);
  EXPECT_EQ(restarts.outcome().cause,
            "rank 1 was killed\nthe job was started again 9 times already (--max_restarts)");
}

TEST(RestartsTest, AMachineThatIsAwayBeforeTheFirstRunEndsTheJob) {
  Restarts restarts(9, kHour);
  EXPECT_FALSE(restarts.Again({.exit_code = 1, .cause = "no route", .is_early = true}, 0, 0));
  EXPECT_EQ(restarts.outcome().cause, "no route");
}

TEST(RestartsTest, OneThatComesFurtherAtLastIsProgress) {
  Restarts restarts(100, kHour);
  EXPECT_TRUE(restarts.Again(Lost(), 10, 0));
  EXPECT_TRUE(restarts.Again(Lost(), 10, 1));
  EXPECT_TRUE(restarts.Again(Lost(), 11, 2));
  EXPECT_TRUE(restarts.Again(Lost(), 11, 3));
  EXPECT_FALSE(restarts.Again(Lost(), 11, 4));
}

TEST(RestartsTest, AJobThatNeverReachesAStepEnds) {
  Restarts restarts(100, kHour);
  EXPECT_TRUE(restarts.Again(Lost("no memory"), 0, 0));
  EXPECT_TRUE(restarts.Again(Lost("no memory"), 0, 1));
  EXPECT_FALSE(restarts.Again(Lost("no memory"), 0, 2));
  EXPECT_THAT(restarts.outcome().cause, StartsWith("no memory\n"));
}

TEST(ParseDurationTest, Units) {
  EXPECT_EQ(ParseDuration("90"), 90);
  EXPECT_EQ(ParseDuration("90s"), 90);
  EXPECT_EQ(ParseDuration("1.5m"), 90);
  EXPECT_EQ(ParseDuration("1h"), kHour);
  EXPECT_EQ(ParseDuration("2d"), 48 * kHour);
  for (const char* text : {"", "h", "1w", "1h30m", "-1", "inf", "nan", "1 h"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace strata::launcher
