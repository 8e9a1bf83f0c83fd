// The generator behind math.random, compared with published numbers.
#include "lua/core/splitmix.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace strata::lua {
namespace {

TEST(Random, IsSplitmix64) {
  // The first numbers of Vigna's reference implementation from the seed 1234567.
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(Random, EqualSeedsGiveEqualNumbers) {
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.NextDouble(), b.NextDouble());
  EXPECT_NE(a.NextDouble(), c.NextDouble());
}

TEST(Random, AsksForItsSeedOnceAndLate) {
  int asked = 0;
  Random late([&]() -> uint64_t { return ++asked, 7; });
  EXPECT_EQ(asked, 0);
  Random early(7);
  EXPECT_EQ(late.Next(), early.Next());
  EXPECT_EQ(late.Next(), early.Next());
  EXPECT_EQ(asked, 1);
}

TEST(Random, IntegersAreWithinBoundsAndMeetAll) {
  Random random(1);
  std::array<int, 6> met{};
  for (int i = 0; i < 6000; ++i) ++met.at(random.NextInt(1, 6) - 1);
  for (int count : met) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.NextInt(5, 5), 5);
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  random.NextInt(kLow, kHigh);
  for (int i = 0; i < 100; ++i) EXPECT_LE(random.NextInt(kLow, -1), -1);
}

TEST(Random, DoublesAreEven) {
  Random random(1);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double drawn = random.NextDouble();
    ASSERT_GE(drawn, 0);
    ASSERT_LT(drawn, 1);
    sum += drawn;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace strata::lua
