// Trains on the shadow devices with our own kernels for GPUs (engine/layers/cuda/*.cu), which run
// on the CPU, and with ATen's: the losses, equal bits for each plan, and how much less is launched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>

#include "tests/shadow/own_launcher.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using testing::MapOf;

int64_t LaunchesOfAStep(const Outcome& outcome) {
  constexpr int kSteps = 2;
  int64_t launches = 0;
  for (const auto& [doing, counts] : outcome.counts) launches += counts.launches;
  return launches / kSteps;
}

class OwnKernelsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(OwnKernelsTest, HaveAtensLossesAndFewerLaunches) {
  const auto [model, precision] = GetParam();
  const bool is_half = std::string(precision) != "fp32";
  Value::Map more = {{"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}};
  if (is_half) more.emplace_back("precision", MapOf({{"1", precision}}));
  const Case one = {model, "1f1b", 1, 1, 1, more}, two = {model, "1f1b", 2, 1, 1, more};
  Machine::Get().Reset();
  const Outcome aten = Train(one, "shadow");
  Machine::Get().Reset();
  const Launcher launcher;
  const Outcome own = Train(one, "shadow");
  EXPECT_THAT(Machine::Get().reports(), ::testing::IsEmpty());
  ASSERT_EQ(own.losses.size(), aten.losses.size());
  for (size_t i = 0; i < own.losses.size(); ++i) {
    EXPECT_NEAR(own.losses[i], aten.losses[i], (is_half ? 0.02 : 1e-5) * std::abs(aten.losses[i]));
  }
  EXPECT_LT(LaunchesOfAStep(own), LaunchesOfAStep(aten));
  std::printf("| %s, %s | %ld | %ld |\n", model, precision, LaunchesOfAStep(aten),
              LaunchesOfAStep(own));
  Machine::Get().Reset();
  const Outcome of_two = Train(two, "shadow", "nccl");
  EXPECT_EQ(of_two.losses, own.losses);
  EXPECT_EQ(of_two.digests, own.digests);
  EXPECT_THAT(Machine::Get().reports(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Of, OwnKernelsTest,
                         ::testing::Combine(::testing::Values("tokens", "llama", "dense"),
                                            ::testing::Values("fp32", "bf16")));

/// Averages are swapped in for an evaluation and out again; the copies in half precision follow.
TEST(OwnKernelCopiesTest, FollowAveragesAndReplicas) {
  for (const Value::Map& key : {Value::Map{{"ema", 0.9}}, Value::Map{{"zero", 1}}}) {
    Value::Map more = key;
    more.emplace_back("precision", MapOf({{"1", "bf16"}}));
    const Case c = {"dense", "1f1b", 1, key[0].first == "zero" ? 2 : 1, 1, more};
    const Outcome aten = Train(c, "shadow");
    const Launcher launcher;
    const Outcome own = Train(c, "shadow");
    ASSERT_EQ(own.losses.size(), aten.losses.size());
    for (size_t i = 0; i < own.losses.size(); ++i) {
      EXPECT_NEAR(own.losses[i], aten.losses[i], 0.003 * std::abs(aten.losses[i]));
    }
  }
}

}  // namespace
}  // namespace strata::shadow
