#include "engine/spec/optimizer.h"

#include <gtest/gtest.h>

#include "engine/spec/job_fields.h"
#include "engine/spec/testing_job.h"

namespace strata {
namespace {

/// Weights of layer 3, then all biases, then everything in layer 1.
Job Grouped() {
  Value::List groups = {
      MapOf({{"layers", Value::List{3}}, {"parameters", "weight"}, {"lr", 1}}),
      MapOf({{"parameters", "bias|norm"}, {"weight_decay", 0}}),
      MapOf({{"layers", 1}, {"momentum", 0.5}}),
  };
  return Build({{"optimizer", MapOf({{"1", "sgd"},
                                     {"lr", 0.1},
                                     {"weight_decay", 0.01},
                                     {"momentum", 0.9},
                                     {"groups", std::move(groups)}})}});
}

int GroupOf(int layer, const std::string& parameter) {
  const Job job = Grouped();
  return FindParameterGroup(job.optimizer, job.layers, layer, parameter);
}

TEST(CountMoments, EveryOptimizerTellsThem) {
  for (const OptionTable& type : OptimizerTypes()) EXPECT_NE(type.moments, nullptr) << type.name;
  const auto count = [](Value optimizer) {
    return CountMoments(Build({{"optimizer", std::move(optimizer)}}).optimizer);
  };
  EXPECT_EQ(count(MapOf({{"1", "sgd"}, {"lr", 0.1}})), 0);
  EXPECT_EQ(count(MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})), 1);
  EXPECT_EQ(count(MapOf({{"1", "adam"}, {"lr", 0.1}})), 2);
  EXPECT_EQ(count(MapOf({{"1", "adamw"}, {"lr", 0.1}, {"amsgrad", true}})), 3);
}

TEST(FindParameterGroup, TheFirstThatTakesItHolds) {
  EXPECT_EQ(GroupOf(3, "weight"), 0);
  EXPECT_EQ(GroupOf(3, "bias"), 1);
  EXPECT_EQ(GroupOf(1, "bias"), 1);
  EXPECT_EQ(GroupOf(1, "weight"), 2);
  EXPECT_EQ(GroupOf(0, "weight"), -1);
}

TEST(FindParameterGroup, TheExpressionIsFoundAnywhere) {
  EXPECT_EQ(GroupOf(0, "self_attn.in_proj_bias"), 1);
  EXPECT_EQ(GroupOf(0, "norm1.weight"), 1);
  EXPECT_EQ(GroupOf(0, "NORM.weight"), 1);
  EXPECT_EQ(GroupOf(0, "linear1.weight"), -1);
}

TEST(FindParameterGroup, WithoutGroupsNoneHolds) {
  const Job job = Build();
  EXPECT_EQ(FindParameterGroup(job.optimizer, job.layers, 1, "weight"), -1);
}

TEST(GroupOptions, OverrideTheOptimizers) {
  const OptimizerSpec spec = Grouped().optimizer;
  const Value own = GroupOptions(spec, -1);
  EXPECT_EQ(own, spec.options);
  const Value first = GroupOptions(spec, 0), second = GroupOptions(spec, 1);
  EXPECT_EQ(first["lr"], Value(1.0));
  EXPECT_EQ(first["momentum"], Value(0.9));
  EXPECT_EQ(second["weight_decay"], Value(0.0));
  EXPECT_EQ(second["lr"], Value(0.1));
  EXPECT_EQ(first.as_map().size(), own.as_map().size()) << "every option is there";
}

}  // namespace
}  // namespace strata
