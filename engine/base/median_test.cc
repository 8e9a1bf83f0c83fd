#include "engine/base/median.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Median, IsTheUpperOneInTheMiddle) {
  EXPECT_EQ(Median(std::vector<int>{3, 1, 2}), 2);
  EXPECT_EQ(Median(std::vector<double>{4, 1, 3, 2}), 3);
  EXPECT_EQ(Median(std::vector<double>{}), 0);
}

TEST(Quantile, OfTwoIsTheLowerOne) {
  EXPECT_EQ(Quantile({2, 1}, 0.5), 1);
  EXPECT_EQ(Quantile({5, 4, 3, 2, 1}, 0.25), 2);
  EXPECT_EQ(Quantile({5, 4, 3, 2, 1}, 0.75), 4);
  EXPECT_EQ(Quantile({7}, 0.75), 7);
}

}  // namespace
}  // namespace strata
