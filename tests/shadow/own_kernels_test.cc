// Trains on the shadow devices with our own kernels for GPUs (engine/layers/cuda/*.cu), which run
// on the CPU, and with ATen's: the losses, equal bits for each plan, and how much less is launched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/shadow/own_launcher.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using testing::Make;
using testing::MapOf;

int64_t LaunchesOfAStep(const Outcome& outcome) {
  constexpr int kSteps = 2;
  int64_t launches = 0;
  for (const auto& [doing, counts] : outcome.counts) launches += counts.launches;
  return launches / kSteps;
}

/// The model's layers, none of which drops anything: our kernels draw other numbers than ATen's.
std::vector<LayerSpec> WithoutDropout(const std::string& model) {
  std::vector<LayerSpec> layers = LayersOf(model);
  const std::function<void(LayerSpec&)> clear = [&](LayerSpec& layer) {
    if (layer.args.Has("dropout")) layer.args.Set("dropout", 0.0);
    if (layer.type == "Dropout") layer.args.Set("p", 0.0);
    for (LayerSpec& child : layer.children) clear(child);
  };
  for (LayerSpec& layer : layers) clear(layer);
  return layers;
}

class OwnKernelsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(OwnKernelsTest, HaveAtensLossesAndFewerLaunches) {
  const auto [model, precision] = GetParam();
  const bool is_half = std::string(precision) != "fp32";
  Value::Map more = {{"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}};
  if (is_half) more.emplace_back("precision", MapOf({{"1", precision}}));
  const Case without = {model, "1f1b", 1, 1, 1, more, WithoutDropout(model)};
  Machine::Get().Reset();
  const Outcome aten = Train(without, "shadow");
  Machine::Get().Reset();
  const Launcher launcher;
  const Outcome own = Train(without, "shadow");
  EXPECT_THAT(Machine::Get().reports(), ::testing::IsEmpty());
  ASSERT_EQ(own.losses.size(), aten.losses.size());
  for (size_t i = 0; i < own.losses.size(); ++i) {
    // The last one is the share of right answers, which moves in steps.
    const double size = std::max(1.0, std::abs(aten.losses[i]));
    EXPECT_NEAR(own.losses[i], aten.losses[i], (is_half ? 0.02 : 1e-5) * size);
  }
  EXPECT_LT(LaunchesOfAStep(own), LaunchesOfAStep(aten));
  std::printf("| %s, %s | %ld | %ld |\n", model, precision, LaunchesOfAStep(aten),
              LaunchesOfAStep(own));
  // With dropout, for each plan the same bits.
  const Outcome dropped = Train({model, "1f1b", 1, 1, 1, more}, "shadow");
  Value::Map recomputed = more;
  recomputed.emplace_back("recompute", true);
  std::vector<Case> plans = {{model, "1f1b", 2, 1, 1, more}};
  if (!is_half) {
    plans.push_back({model, "zb_h1", 2, 1, 1, more});
    plans.push_back({model, "1f1b", 1, 1, 1, recomputed});
  }
  for (const Case& c : plans) {
    Machine::Get().Reset();
    const Outcome other = Train(c, "shadow", c.pipe > 1 ? "nccl" : "threads");
    EXPECT_EQ(other.losses, dropped.losses) << c.Name();
    EXPECT_EQ(other.digests, dropped.digests) << c.Name();
    EXPECT_THAT(Machine::Get().reports(), ::testing::IsEmpty()) << c.Name();
  }
}

INSTANTIATE_TEST_SUITE_P(Of, OwnKernelsTest,
                         ::testing::Combine(::testing::Values("tokens", "llama", "dense",
                                                              "residuals"),
                                            ::testing::Values("fp32", "bf16")));

/// Averages are swapped in for an evaluation and out again; the copies in half precision follow.
TEST(OwnKernelCopiesTest, FollowAveragesAndReplicas) {
  const std::vector<LayerSpec> layers = WithoutDropout("dense");
  for (const Value::Map& key : {Value::Map{{"ema", 0.9}}, Value::Map{{"zero", 1}}}) {
    Value::Map more = key;
    more.emplace_back("precision", MapOf({{"1", "bf16"}}));
    const Case c = {"dense", "1f1b", 1, key[0].first == "zero" ? 2 : 1, 1, more, layers};
    const Outcome aten = Train(c, "shadow");
    const Launcher launcher;
    const Outcome own = Train(c, "shadow");
    ASSERT_EQ(own.losses.size(), aten.losses.size());
    for (size_t i = 0; i < own.losses.size(); ++i) {
      EXPECT_NEAR(own.losses[i], aten.losses[i], 0.003 * std::abs(aten.losses[i]));
    }
  }
}

/// Ranks of the model axis use their parts of the numbers that one rank draws.
TEST(OwnKernelAxisTest, DropsTheSameElements) {
  const Launcher launcher;
  const Value::Map more = {{"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}};
  const Outcome one = Train({"tokens", "1f1b", 1, 1, 1, more}, "shadow");
  const Outcome two = Train({"tokens", "1f1b", 1, 1, 2, more}, "shadow", "nccl");
  ASSERT_EQ(one.losses.size(), two.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(two.losses[i], one.losses[i], 1e-5 * one.losses[i]) << i;
  }
}

/// Replicas sum a piece of the gradients once the backward has passed its first layer. Here a piece
/// of 16 MiB begins with a norm whose backward runs with that of the layer before.
TEST(OwnKernelReplicasTest, SumNoGradientOfANormTooEarly) {
  const LayerSpec norm = Make("LayerNorm", {64}), linear = Make("Linear", {64, 64});
  const LayerSpec block = MakeLayer("Residual", {}, {}, {norm, linear}, "");
  const int64_t of_block = 64 * 64 + 3 * 64, rows = ((int64_t{1} << 22) - of_block) / 64;
  const std::vector<LayerSpec> layers = {Make("Embedding", {rows, 64}), block, block, norm,
                                         Make("Linear", {64, 96})};
  const Launcher launcher;
  const Outcome one = Train({"tokens", "1f1b", 1, 1, 1, {}, layers}, "shadow");
  const Outcome two = Train({"tokens", "1f1b", 1, 2, 1, {}, layers}, "shadow", "nccl");
  ASSERT_EQ(one.norms.size(), two.norms.size());
  for (size_t i = 0; i < one.norms.size(); ++i) {
    EXPECT_NEAR(two.norms[i], one.norms[i], 1e-5 * one.norms[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace strata::shadow
