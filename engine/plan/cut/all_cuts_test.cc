#include "engine/plan/cut/all_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace strata::partition {
namespace {

TEST(ForEachCut, VisitsEachOnce) {
  for (int layers = 1; layers <= 9; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      std::vector<std::vector<int>> cuts;
      ForEachCut(layers, stages, [&](const std::vector<int>& bounds) {
        EXPECT_EQ(bounds.front(), 0);
        EXPECT_EQ(bounds.back(), layers);
        EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()));
        cuts.push_back(bounds);
      });
      EXPECT_EQ(static_cast<double>(cuts.size()), CountCuts(layers, stages, 1e9));
      std::sort(cuts.begin(), cuts.end());
      EXPECT_EQ(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
  }
  EXPECT_EQ(CountCuts(99, 97, 1e9), 98 * 97 / 2);
  EXPECT_EQ(CountCuts(99, 40, 1000), 1000);
}

}  // namespace
}  // namespace strata::partition
