// The profiles that are kept between processes, and the ones that a job uses.
#include "lua/host/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/layers/layer_types.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::ElementsAre;

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

  /// Adds a layer from `width` features to twice as many.
  void AddLayer(int width) {
    job_.layers.push_back(MakeLayer("Linear", {width, 2 * width}, {}, {}, ""));
    if (width == 8) task_.input = {TensorSpec{{4, width}}};
    task_.outputs.push_back({TensorSpec{{4, 2 * width}}});
  }

  ProfileCache Open() const { return {task_, "LibTorch 2"}; }

  Profile Taken(double seconds) const {
    Profile profile;
    profile.layers.assign(job_.layers.size(), {seconds, 2 * seconds, 0});
    profile.loss = {seconds, seconds, 0};
    profile.update = seconds;
    return profile;
  }
  void Remember(double seconds, std::vector<std::string> places = {"0", "0"}) {
    Remember(Taken(seconds), std::move(places));
  }
  /// Stores a run with layers on these ranks.
  void Remember(const Profile& profile, std::vector<std::string> places,
                const std::string& schedule = "1f1b") {
    MeasureTask task = task_;
    task.plan = {std::move(places), "gloo", {.schedule = schedule}};
    Open().AddRun(task, profile);
  }
  /// The forward seconds of layer 0, from the runs most similar to a plan with layers on these
  /// ranks, or from all runs if `places` is empty; 0 if none is known.
  double Forward(const std::vector<std::string>& places, const std::string& schedule = "1f1b") {
    MeasureTask task = task_;
    task.plan = {places, "gloo", {.schedule = schedule}};
    const Profile known = Open().Known(task);
    return known.layers.empty() ? 0 : known.layers[0].forward;
  }

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
  EXPECT_TRUE(known.is_whole);
  EXPECT_EQ(known.layers, Taken(3).layers);
  EXPECT_EQ(known.loss, (PassSeconds{3, 3, 0}));
  EXPECT_EQ(known.update, 3);
}

TEST_F(ProfileCacheTest, ARunBesideAnotherProgramDoesNotCount) {
  for (const double seconds : {3, 9}) Remember(seconds);
  EXPECT_EQ(Forward({}), 3);
  Profile profile = Taken(4);
  profile.loss.input_grad = 8;
  profile.update = 1;
  Remember(profile, {"0", "0"});
  const Profile known = Open().Known(task_);
  EXPECT_EQ(known.layers[1], (PassSeconds{4, 8, 0}));
  EXPECT_EQ(known.loss, (PassSeconds{4, 8, 0}));
  EXPECT_EQ(known.update, 3) << "each number for itself";
  for (int run = 0; run < 3; ++run) Remember(10);
  EXPECT_EQ(Forward({}), 10) << "a machine that has become slower";
}

TEST_F(ProfileCacheTest, APlanIsKnownByItsOwnRuns) {
  EXPECT_EQ(Forward({"0", "0"}), 0) << "there are none";
  Remember(3);
  for (const char* second : {"1", "2"}) {
    for (int run = 0; run < 5; ++run) Remember(5, {"0", second});
  }
  EXPECT_EQ(Forward({"0", "0"}), 3) << "plans that ran more do not push it out";
  EXPECT_EQ(Forward({"0", "1"}), 5);
  EXPECT_EQ(Forward({}), 5) << "all runs";
  for (const char* second : {"3", "4"}) {
    for (int run = 0; run < 5; ++run) Remember(6, {"0", second});
  }
  EXPECT_EQ(Forward({"0", "2"}), 5);
  EXPECT_EQ(Forward({"0", "0"}), 6) << "the oldest ones are forgotten, and all others are as far";
}

TEST_F(ProfileCacheTest, APlanThatHasNotRunGoesByTheOnesMostLikeIt) {
  AddLayer(32);
  const auto remember = [&](const std::vector<std::string>& places, double seconds) {
    Profile profile = Taken(seconds);
    profile.layers[1] = {seconds / 100, 0, 0};
    Remember(profile, places);
  };
  remember({"0", "0", "1"}, 3);
  remember({"0", "1", "0"}, 5);
  EXPECT_EQ(Forward({"0", "1", "1"}), 3) << "a small layer is elsewhere";
  EXPECT_EQ(Forward({"0", "0", "0"}), 5);
  for (int run = 0; run < 3; ++run) remember({"0", "1", "1"}, 4);
  EXPECT_EQ(Forward({"0", "0", "1"}), 4) << "plans that hardly differ count as one";
}

TEST_F(ProfileCacheTest, KnowsEachPlanThatRan) {
  const RanPlan one = {{0, 1, 2}, {0, 1}, "1f1b"}, other = {{0, 2}, {0}, "auto"};
  for (const RanPlan& ran : {one, other, one}) {
    MeasureTask task = task_;
    task.plan = {{"0", "1"}, "gloo", ran};
    Open().AddRun(task, Taken(3));
  }
  EXPECT_THAT(Open().Known(task_).ran, ElementsAre(one, other));
}

TEST_F(ProfileCacheTest, AnotherScheduleIsFartherThanASmallLayerAndNearerThanALargeOne) {
  Remember(Taken(3), {"0", "0"}, "gpipe");
  EXPECT_EQ(Forward({"0", "0"}, "1f1b"), 3);
  Remember(Taken(5), {"0", "1"}, "1f1b");
  EXPECT_EQ(Forward({"0", "0"}, "1f1b"), 3) << "a half of the time is elsewhere";
  Profile small_layer = Taken(4);
  small_layer.layers[1] = {0.1, 0, 0};
  Remember(small_layer, {"0", "2"}, "1f1b");
  EXPECT_EQ(Forward({"0", "0"}, "1f1b"), 4);
  for (int run = 0; run < 2; ++run) Remember(6, {"0", "0"});
  EXPECT_EQ(Forward({"0", "0"}, "1f1b"), 6) << "the middle one of three that are alike";
}

TEST_F(ProfileCacheTest, RunsWithoutAllLayersTellNothing) {
  Remember(3);
  std::ifstream file(File());
  const Value value = Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
  const auto& [key, runs] = *value["runs"]["plans"].as_map().begin();
  for (const char* list : {"layers", "places"}) {
    Value run = runs.as_list()[0], edited = value;
    run.Set(list, Value::List{run[list].as_list()[0]});
    const Value of_jobs = Value::MakeMap({{key, Value::List{run}}});
    edited.Set("runs", Value::MakeMap({{"layers", Value::MakeMap()}, {"plans", of_jobs}}));
    std::ofstream(File()) << edited.ToJson();
    EXPECT_EQ(Forward({}), 0) << list;
    EXPECT_EQ(Forward({"0", "0"}), 0) << list;
  }
}

TEST_F(ProfileCacheTest, AFileOfAnEarlierProgramIsRead) {
  Open().Add(task_, Taken(2));
  Remember(3);
  std::ifstream file(File());
  Value value = Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
  Value jobs = Value::MakeMap();
  for (const auto& [key, entry] : value["jobs"].as_map()) {
    Value old = Value::MakeMap();
    for (const auto& [name, number] : entry.as_map()) {
      if (name != "action") old.Set(name, number);
    }
    jobs.Set(key, old);
  }
  value.Set("jobs", jobs)
      .Set("runs",
           Value::MakeMap({{"layers", value["runs"]["layers"]}, {"jobs", Value::MakeMap()}}));
  std::ofstream(File()) << value.ToJson();
  testing::internal::CaptureStderr();
  const std::optional<Profile> alone = Open().Find(task_);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->update, 2);
  EXPECT_EQ(alone->action, kActionSeconds);
}

TEST_F(ProfileCacheTest, LayersThatTakeNoTimeAreKnownToo) {
  Profile profile = Taken(3);
  profile.layers[1] = {};
  Remember(profile, {"0", "0"});
  EXPECT_TRUE(Open().Known(task_).is_whole);
}

TEST_F(ProfileCacheTest, RunsAreBetterThanLayersAlone) {
  Open().Add(task_, Taken(1));
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 1);
  Remember(3);
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 3);
  EXPECT_EQ(Open().Find(task_)->layers[0].forward, 1) << "what they took alone";
}

TEST_F(ProfileCacheTest, OfALayerMoreTheOthersAreKnown) {
  Remember(3);
  AddLayer(32);
  const Profile known = Open().Known(task_);
  EXPECT_FALSE(known.is_whole);
  EXPECT_EQ(known.layers[1].forward, 3);
  EXPECT_EQ(known.layers[2], PassSeconds());
}

TEST_F(ProfileCacheTest, OtherJobsTakeTheMeanOfLayersThatAreAlike) {
  job_.layers = {job_.layers[0], job_.layers[0], job_.layers[0]};
  task_.outputs = {task_.input, task_.input, task_.input};
  Profile profile = Taken(3);
  profile.layers[2].forward = 6;
  Remember(profile, {"0", "0", "0"});
  EXPECT_EQ(Open().Known(task_).layers[2].forward, 6);
  job_.loss = MakeLayer("L1Loss", {}, {}, {}, "");
  EXPECT_EQ(Open().Known(task_).layers[0].forward, 3) << "the first one has no layer before it";
  EXPECT_EQ(Open().Known(task_).layers[2].forward, 4.5);
}

TEST_F(ProfileCacheTest, AnotherOptimizerIsNotThatOfTheRun) {
  Remember(3);
  job_.optimizer.options.Set("lr", 0.2);
  EXPECT_TRUE(Open().Known(task_).is_whole) << "as long as before";
  job_.optimizer.options.Set("momentum", 0.9);
  EXPECT_FALSE(Open().Known(task_).is_whole);
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
  Open().Add(task_, Taken(1));
  Remember(3);
  std::ifstream file(File());
  Value value = Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
  std::ofstream(File()) << value.Set("disturbed", 1).ToJson();
  EXPECT_FALSE(Open().Find(task_));
  EXPECT_TRUE(Open().Known(task_).is_whole);
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
