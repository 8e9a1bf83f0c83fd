#include "engine/job/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

/// The scale after each step; '.' is a good step, 'x' an overflow.
std::vector<double> Scales(const LossScaleSpec& spec, const std::string& steps) {
  LossScale scale(spec);
  std::vector<double> scales;
  for (const char step : steps) {
    scale.Update(step == '.');
    scales.push_back(scale.value());
  }
  return scales;
}

LossScaleSpec Dynamic(int64_t interval, int64_t hysteresis = 1) {
  return {.initial = 16, .dynamic = true, .interval = interval, .hysteresis = hysteresis};
}

// torch.amp.GradScaler(init_scale=16, growth_interval=3) gave these for the same steps, and
// deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler(init_scale=16, scale_window=3,
// delayed_shift=1).
TEST(LossScaleTest, GoesAsPyTorchsAndDeepSpeeds) {
  EXPECT_THAT(Scales(Dynamic(3), "..x...x....xx"),
              ElementsAre(16, 16, 8, 8, 8, 16, 8, 8, 8, 16, 16, 8, 4));
}

// DynamicLossScaler(init_scale=16, scale_window=3, delayed_shift=2, consecutive_hysteresis=False).
TEST(LossScaleTest, HysteresisForgivesOverflowsUntilTheScaleGrows) {
  EXPECT_THAT(Scales(Dynamic(3, 2), "x.x....x"), ElementsAre(16, 16, 8, 8, 8, 16, 16, 16));
  EXPECT_THAT(Scales(Dynamic(3, 2), "xxx"), ElementsAre(16, 8, 4));
}

TEST(LossScaleTest, GoesNoLowerThanItsLeast) {
  LossScaleSpec spec = Dynamic(3);
  spec.least = 8;
  LossScale scale(spec);
  EXPECT_TRUE(scale.can_go_back());
  scale.Update(false);
  scale.Update(false);
  EXPECT_EQ(scale.value(), 8);
  EXPECT_FALSE(scale.can_go_back());
}

TEST(LossScaleTest, GrowsNoHigherThanAFloatHoldsOfAWholeBatch) {
  LossScaleSpec spec = Dynamic(1);
  spec.initial = LossScale::kMost / 4;
  EXPECT_THAT(Scales(spec, "...x."), ElementsAre(0x1p99, 0x1p100, 0x1p100, 0x1p99, 0x1p100));
  spec.growth = 3;
  EXPECT_THAT(Scales(spec, ".."), ElementsAre(0.75 * 0x1p100, 0.75 * 0x1p100));
}

TEST(LossScaleTest, AFixedOneStays) {
  EXPECT_THAT(Scales({.initial = 128}, "x....x"), ElementsAre(128, 128, 128, 128, 128, 128));
  EXPECT_FALSE(LossScale({.initial = 128}).can_go_back());
}

TEST(LossScaleTest, ASaveGoesOnWhereItWas) {
  const std::string before = "x..", behind = ".x..xx...";
  LossScale whole(Dynamic(3, 2)), first(Dynamic(3, 2)), second(Dynamic(3, 2));
  for (const char step : before) {
    whole.Update(step == '.');
    first.Update(step == '.');
  }
  second.set_state(first.state());
  for (const char step : behind) {
    whole.Update(step == '.');
    second.Update(step == '.');
    EXPECT_EQ(second.value(), whole.value());
  }
}

TEST(LossScaleTest, ABrokenSaveIsRefused) {
  LossScale scale(Dynamic(3));
  for (const char* text : {"{}", R"({"scale": 0, "good_steps": 0, "hysteresis": 1})",
                           R"({"scale": "x", "good_steps": 0, "hysteresis": 1})"}) {
    EXPECT_NE(ConfigErrorOf([&] { scale.set_state(Value::FromJson(text)); }), "no error") << text;
  }
}

}  // namespace
}  // namespace strata
