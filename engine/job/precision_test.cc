#include "engine/job/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

Precision Read(const std::string& type, Value::Map named = {}) {
  for (const OptionTable& entry : PrecisionTypes()) {
    if (entry.name == type) {
      return ReadPrecision(
          type, Canonicalize(entry.fields, {.subject = type, .named = std::move(named)}));
    }
  }
  throw ConfigError("no precision " + type);
}

TEST(PrecisionTest, TypesFollowFromTheName) {
  EXPECT_FALSE(Read("float32").is_half());
  EXPECT_FALSE(Read("tf32").is_half());
  const Precision bf16 = Read("bf16");
  EXPECT_EQ(bf16.compute, DType::kBFloat16);
  EXPECT_EQ(bf16.params, DType::kFloat32);
  EXPECT_EQ(bf16.loss_scale.initial, 1) << "bfloat16 has float32's range";
  EXPECT_EQ(Read("bf16", {{"params", "bf16"}}).params, DType::kBFloat16);
  EXPECT_EQ(Read("bf16", {{"reduce", "bf16"}}).reduce, DType::kBFloat16);
  EXPECT_EQ(Read("fp16").compute, DType::kFloat16);
  EXPECT_TRUE(Read("fp16").loss_scale.dynamic);
  EXPECT_FALSE(Read("fp16", {{"scale", 128}}).loss_scale.dynamic);
}

TEST(PrecisionTest, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_THAT(ConfigErrorOf([] {
                Read("bf16", {{"params", "bf16"}, {"gradients", "float32"}});
              }),
              HasSubstr("the type of params, which is bf16"));
  EXPECT_THAT(ConfigErrorOf([] { Read("fp16", {{"params", "fp16"}}); }), HasSubstr("params"));
  EXPECT_THAT(ConfigErrorOf([] {
                Read("bf16", {{"messages", "float32"}});
              }),
              HasSubstr("messages"));
  EXPECT_THAT(ConfigErrorOf([] { Read("bf16", {{"scale", 2}}); }), HasSubstr("scale"));
}

TEST(PrecisionTest, EqualValuesMeanEqualPrecisions) {
  EXPECT_EQ(PrecisionToValue(Read("fp16")), PrecisionToValue(Read("fp16")));
  EXPECT_NE(PrecisionToValue(Read("fp16")), PrecisionToValue(Read("fp16", {{"min_scale", 2}})));
  EXPECT_NE(PrecisionToValue(Read("bf16")), PrecisionToValue(Read("bf16", {{"params", "bf16"}})));
}

}  // namespace
}  // namespace strata
