#include "engine/runtime/watch/stragglers.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using Found = std::vector<Straggler>;

/// The step (from 1) at which ranks were reported, and which; 0 if none were.
std::pair<int, Found> Named(Stragglers& stragglers, const std::vector<double>& busy, int steps) {
  for (int step = 1; step <= steps; ++step) {
    Found found = stragglers.Add(busy);
    if (!found.empty()) return {step, found};
  }
  return {0, {}};
}

TEST(StragglersTest, OfRanksWithTheSameWorkTheSlowOneIsNamedWithin20Steps) {
  Stragglers stragglers({0, 0, 1, 1});  // the stage of each rank
  const auto [step, found] = Named(stragglers, {0.1, 0.1, 0.3, 0.75}, 100);
  EXPECT_EQ(found, (Found{{3, 2.5}}));
  EXPECT_LE(step, 20);
  EXPECT_EQ(stragglers.factors(), (std::vector<double>{1, 1, 1, 2.5}));
}

TEST(StragglersTest, StagesThatTakeLongerAreNone) {
  Stragglers stragglers({0, 1, 2});
  EXPECT_EQ(Named(stragglers, {0.1, 0.5, 0.02}, 100).first, 0);
}

TEST(StragglersTest, WhoBecomesSlowIsNamedWithin20StepsThoughNobodyDoesTheSame) {
  Stragglers stragglers({0, 1, 2});
  EXPECT_EQ(Named(stragglers, {0.1, 0.5, 0.02}, 100).first, 0);
  const auto [step, found] = Named(stragglers, {0.1, 1.0, 0.02}, 100);
  EXPECT_EQ(found, (Found{{1, 2}}));
  EXPECT_LE(step, 20);
}

TEST(StragglersTest, WhatSlowsAllDownNamesNobody) {
  Stragglers stragglers({0, 1, 2});
  EXPECT_EQ(Named(stragglers, {0.1, 0.5, 0.02}, 100).first, 0);
  EXPECT_EQ(Named(stragglers, {0.3, 1.5, 0.06}, 100).first, 0);
}

TEST(StragglersTest, FewSlowStepsNameNobody) {
  Stragglers stragglers({0, 0});
  for (int step = 0; step < 100; ++step) {
    const double second = step % 10 < 4 ? 0.9 : 0.1;
    EXPECT_TRUE(stragglers.Add({0.1, second}).empty()) << step;
  }
}

TEST(StragglersTest, StepsOfMicrosecondsNameNobody) {
  Stragglers stragglers({0, 0});
  EXPECT_EQ(Named(stragglers, {1e-5, 9e-4}, 100).first, 0);
}

TEST(StragglersTest, EachIsNamedOnceUntilItGetsWorseOrBetter) {
  Stragglers stragglers({0, 0});
  EXPECT_EQ(Named(stragglers, {0.1, 0.2}, 100).second, (Found{{1, 2}}));
  EXPECT_EQ(Named(stragglers, {0.1, 0.2}, 100).first, 0);
  EXPECT_EQ(Named(stragglers, {0.1, 0.4}, 100).second, (Found{{1, 4}}));
  EXPECT_EQ(Named(stragglers, {0.1, 0.1}, 100).first, 0);
  EXPECT_EQ(Named(stragglers, {0.1, 0.2}, 100).second, (Found{{1, 2}}));
}

TEST(StragglersTest, TheFirstStepWarmsUp) {
  Stragglers stragglers({0, 0});
  EXPECT_TRUE(stragglers.Add({0.1, 9}).empty());
  EXPECT_EQ(Named(stragglers, {0.1, 0.1}, 100).first, 0);
}

TEST(StragglersTest, WhoGotMoreLayersIsNone) {
  Stragglers stragglers({0, 1, 2});
  EXPECT_EQ(Named(stragglers, {0.1, 0.5, 0.02}, 100).first, 0);
  stragglers.Forget();
  EXPECT_EQ(Named(stragglers, {0.2, 0.3, 0.06}, 100).first, 0);
  EXPECT_EQ(Named(stragglers, {0.2, 0.3, 0.12}, 100).second, (Found{{2, 2}}));
}

TEST(StragglersTest, ARankAloneHasNoOthers) {
  Stragglers stragglers({0});
  EXPECT_EQ(Named(stragglers, {0.1}, 50).first, 0);
  EXPECT_EQ(Named(stragglers, {0.9}, 50).first, 0);
}

}  // namespace
}  // namespace strata
