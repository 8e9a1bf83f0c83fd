// What is kept between processes, and what of it a job takes.
#include "lua/host/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/spec/layers/layers.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

class ProfileCacheTest : public ::testing::Test {
 protected:
  ProfileCacheTest() {
    ::setenv("STRATA_CACHE", folder_.path().c_str(), 1);
    for (const int width : {8, 16}) AddLayer(width);
    job_.loss = MakeLayer("MSELoss", {}, {}, {}, "");
    job_.optimizer = {.type = "sgd", .options = Value::MakeMap({{"lr", 0.1}}), .groups = {}};
    task_.job = &job_;
    task_.batch.micro_batch_size = 4;
    task_.device = "cpu";
  }

  /// From so many features to twice as many.
  void AddLayer(int width) {
    job_.layers.push_back(MakeLayer("Linear", {width, 2 * width}, {}, {}, ""));
    if (width == 8) task_.input = {TensorSpec{{4, width}}};
    task_.outputs.push_back({TensorSpec{{4, 2 * width}}});
  }

  ProfileCache Open() const { return {task_, "LibTorch 2"}; }

  Profile Taken(double seconds, SecondsFrom from) const {
    Profile profile;
    profile.layers.assign(job_.layers.size(), {seconds, 2 * seconds, 0});
    profile.loss = {seconds, seconds, 0};
    profile.update = seconds;
    profile.seconds_from = from;
    return profile;
  }
  void Remember(double seconds) { Open().AddRun(task_, Taken(seconds, SecondsFrom::kEarlierRuns)); }

  std::string File() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "profiles")) {
      return entry.path();
    }
    return "";
  }

  const ScriptFolder folder_;
  Job job_;
  MeasureTask task_;
};

TEST_F(ProfileCacheTest, TheNextProcessKnowsWhatARunMeasured) {
  EXPECT_TRUE(Open().Known(task_).layers.empty());
  Remember(3);
  const Profile known = Open().Known(task_);
  EXPECT_EQ(known.seconds_from, SecondsFrom::kEarlierRuns);
  EXPECT_EQ(known.layers, Taken(3, SecondsFrom::kEarlierRuns).layers);
  EXPECT_EQ(known.loss, (PassSeconds{3, 3, 0}));
  EXPECT_EQ(known.update, 3);
  Remember(5);
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 5) << "the latest run";
}

TEST_F(ProfileCacheTest, LayersThatTakeNoTimeAreKnownToo) {
  Profile profile = Taken(3, SecondsFrom::kEarlierRuns);
  profile.layers[1] = {};
  Open().AddRun(task_, profile);
  EXPECT_EQ(Open().Known(task_).seconds_from, SecondsFrom::kEarlierRuns);
}

TEST_F(ProfileCacheTest, RunsAreBetterThanLayersAlone) {
  Open().Add(task_, Taken(1, SecondsFrom::kMeasuredLayers));
  EXPECT_EQ(Open().Known(task_).seconds_from, SecondsFrom::kMeasuredLayers);
  Remember(3);
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 3);
  EXPECT_EQ(Open().Find(task_)->layers[0].forward, 1) << "what a partition by time asks for";
}

TEST_F(ProfileCacheTest, OfALayerMoreTheOthersAreKnown) {
  Remember(3);
  AddLayer(32);
  const Profile known = Open().Known(task_);
  EXPECT_EQ(known.seconds_from, SecondsFrom::kMeasuredRates);
  EXPECT_EQ(known.layers[1].forward, 3);
  EXPECT_EQ(known.layers[2], PassSeconds());
}

TEST_F(ProfileCacheTest, OtherJobsTakeTheMeanOfLayersThatAreAlike) {
  job_.layers = {job_.layers[0], job_.layers[0], job_.layers[0]};
  task_.outputs = {task_.input, task_.input, task_.input};
  Profile profile = Taken(3, SecondsFrom::kEarlierRuns);
  profile.layers[2].forward = 6;
  Open().AddRun(task_, profile);
  EXPECT_EQ(Open().Known(task_).layers[2].forward, 6);
  job_.loss = MakeLayer("L1Loss", {}, {}, {}, "");
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 3) << "the first one has no layer before it";
  EXPECT_EQ(Open().Known(task_).layers[2].forward, 4.5);
}

TEST_F(ProfileCacheTest, AnotherOptimizerIsNotThatOfTheRun) {
  Remember(3);
  job_.optimizer.options.Set("lr", 0.2);
  EXPECT_EQ(Open().Known(task_).seconds_from, SecondsFrom::kEarlierRuns) << "as long as before";
  job_.optimizer.options.Set("momentum", 0.9);
  EXPECT_EQ(Open().Known(task_).seconds_from, SecondsFrom::kMeasuredRates);
}

TEST_F(ProfileCacheTest, OtherCircumstancesKnowNothing) {
  Remember(3);
  const MeasureTask task = task_;
  const auto is_known = [&] {
    const bool known = !Open().Known(task_).layers.empty();
    task_ = task;
    return known;
  };
  EXPECT_TRUE(is_known());
  task_.threads = 2;
  EXPECT_FALSE(is_known());
  task_.copies = 2;
  EXPECT_FALSE(is_known());
  EXPECT_TRUE((ProfileCache{task_, "LibTorch 3"}.Known(task_).layers.empty()));
  job_.precision.name = "bf16";
  job_.precision.compute = DType::kBFloat16;
  EXPECT_FALSE(is_known());
}

TEST_F(ProfileCacheTest, WhatOthersDisturbedEndsAndRunsStay) {
  Open().Add(task_, Taken(1, SecondsFrom::kMeasuredLayers));
  Remember(3);
  std::ifstream file(File());
  Value value = Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
  std::ofstream(File()) << value.Set("disturbed", 1).ToJson();
  EXPECT_FALSE(Open().Find(task_));
  EXPECT_EQ(Open().Known(task_).seconds_from, SecondsFrom::kEarlierRuns);
}

TEST_F(ProfileCacheTest, ARunThatCannotBeKeptIsForgotten) {
  folder_.Write("profiles", "no folder");
  testing::internal::CaptureStderr();
  Remember(3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(Open().Known(task_).layers.empty());
}

}  // namespace
}  // namespace strata::lua
