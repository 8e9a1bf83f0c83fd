#include "engine/base/check.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Check, TrueDoesNothingAndLeavesTheMessageAlone) {
  int evaluated = 0;
  STRATA_CHECK(1 + 1 == 2) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, IsOneStatement) {
  bool reached = false;
  if (false)
    STRATA_CHECK(false) << "not reached";
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(Check, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  STRATA_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, FalseAbortsWithPlaceConditionAndValues) {
  const int stage = 3;
  EXPECT_EXIT(STRATA_CHECK(stage < 2) << "stage " << stage, testing::KilledBySignal(SIGABRT),
              "check_test.cc:[0-9]+: broken invariant: stage < 2 stage 3");
}

TEST(CheckDeathTest, WithoutAMessageTheConditionIsEnough) {
  EXPECT_DEATH(STRATA_CHECK(2 + 2 == 5), "broken invariant: 2 \\+ 2 == 5");
}

TEST(CheckDeathTest, IsNotCaughtAsAnException) {
  const auto guarded = [] {
    try {
      STRATA_CHECK(false) << "a bug";
    } catch (...) {
    }
  };
  EXPECT_DEATH(guarded(), "a bug");
}

}  // namespace
}  // namespace strata
