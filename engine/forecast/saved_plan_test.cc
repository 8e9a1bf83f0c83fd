// Saved plans: round trips, refused texts, and the differences that are shown.
#include "engine/forecast/saved_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SavedPlan Small() {
  SavedPlan plan;
  plan.name = "small";
  plan.bounds = {0, 2, 3};
  plan.pipe = 2;
  plan.schedule = "1f1b";
  plan.micro_batches = 4;
  plan.micro_batch_size = 8;
  plan.layers = {{"0", "Linear", 6}, {"1", "ReLU", 0}, {"head", "Linear", 20}};
  return plan;
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = ToText(Small());
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string ParseError(const std::string& text) {
  return ConfigErrorOf([&] { ParseSavedPlan(text); });
}

TEST(SavedPlan, IsWhatWasSaved) {
  EXPECT_EQ(ParseSavedPlan(ToText(Small())), Small());
  EXPECT_TRUE(IsSavedPlan(ToText(Small())));
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    SavedPlan plan;
    plan.name = round % 3 ? "é \"quoted\" \\" : "";
    plan.pipe = 1 + static_cast<int>(random() % 4);
    plan.stages_per_rank = 1 + static_cast<int>(random() % 2);
    plan.data = 1 + static_cast<int>(random() % 3);
    plan.bounds = {0};
    for (int s = 0; s < plan.pipe * plan.stages_per_rank; ++s) {
      plan.bounds.push_back(plan.bounds.back() + 1 + static_cast<int>(random() % 3));
    }
    for (int i = 0; i < plan.bounds.back(); ++i) {
      plan.layers.push_back({Str(i), "Linear", static_cast<int64_t>(random()) << 20});
    }
    EXPECT_EQ(ParseSavedPlan(ToText(plan)), plan);
    for (int i = 0; i < plan.bounds.back(); ++i) {
      const auto stage = static_cast<size_t>(StageOf(plan, i));
      EXPECT_TRUE(plan.bounds[stage] <= i && i < plan.bounds[stage + 1]);
    }
  }
}

TEST(SavedPlan, TrustsNothing) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "no saved plan"},
      {"{}", "no saved plan"},
      {"return 1", "no saved plan"},
      {"[1]", "no saved plan"},
      {ToText(Small()).substr(0, 100), "line"},
      {With("\"strata_plan\": 1", "\"strata_plan\": 2"), "strata_plan"},
      {With("\"pipe\": 2", "\"pipe\": 3"), "bounds must be 4 numbers"},
      {With("\"pipe\": 2", "\"pipe\": 0"), "pipe"},
      {With("\"pipe\": 2", "\"pipe\": -2"), "pipe"},
      {With("\"pipe\": 2", "\"pipe\": 1e300"), "pipe"},
      {With("\"pipe\": 2", "\"pipe\": \"2\""), "pipe"},
      {With("\"pipe\": 2", "\"pipes\": 2"), "did you mean \"pipe\"?"},
      {With("\"schedule\": \"1f1b\",", ""), "schedule"},
      {With("\"1f1b\"", "\"\\u001b[2J\""), "control characters"},
      {With("\"head\"", "\"a\\nb\""), "control characters"},
      {With("\"name\": \"small\"", "\"name\": 5"), "name"},
      {With("\"parameters\": 6", "\"parameters\": -1"), "layer 0"},
      {With("\"parameters\": 6", "\"parameters\": 6, \"x\": 1"), "layer 0"},
  };
  for (const auto& [text, why] : cases) EXPECT_THAT(ParseError(text), HasSubstr(why)) << text;
  for (const std::vector<int>& bounds : std::vector<std::vector<int>>{
           {}, {0}, {0, 3}, {0, 3, 3}, {1, 2, 3}, {0, 2, 4}, {0, 2, 1}, {2, 1, 0}}) {
    SavedPlan plan = Small();
    plan.bounds = bounds;
    EXPECT_THAT(ParseError(ToText(plan)), HasSubstr("bounds must be 3 numbers"));
  }
  SavedPlan empty = Small();
  empty.layers.clear();
  EXPECT_THAT(ParseError(ToText(empty)), HasSubstr("1 to 1,000,000 layers"));
}

TEST(SavedPlan, StandsFlippedBytes) {
  const std::string text = ToText(Small());
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string flipped = text;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      ParseSavedPlan(flipped);
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(SavedPlan, TellsPlansApart) {
  SavedPlan other = Small();
  EXPECT_EQ(DifferenceText(Small(), other), "the plans are equal");
  other.bounds = {0, 1, 3};
  other.schedule = "gpipe";
  EXPECT_THAT(DifferenceText(Small(), other),
              AllOf(HasSubstr("bounds: 0, 2, 3 -> 0, 1, 3"), HasSubstr("schedule: 1f1b -> gpipe"),
                    HasSubstr("1  ReLU")));
  const Value value = DifferenceValue(Small(), other);
  ASSERT_EQ(value["moved"].as_list().size(), 1u);
  EXPECT_EQ(value["moved"].as_list()[0]["to"].as_int(), 1);
  other.layers.pop_back();
  EXPECT_THAT(ConfigErrorOf([&] { DifferenceText(Small(), other); }), HasSubstr("of 3 and of 2"));
}

TEST(SavedPlan, FitsItsJobOnly) {
  Job job;
  for (const auto& [type, arguments] :
       {std::pair<const char*, Value::List>{"Linear", {2, 2}}, {"ReLU", {}}, {"Linear", {4, 4}}}) {
    job.layers.push_back(MakeLayer(type, arguments, {}, {}, ""));
  }
  job.layers[2].name = "head";
  EXPECT_EQ(ConfigErrorOf([&] { CheckFits(Small(), job); }), "no error");
  job.layers[2] = MakeLayer("Linear", {4, 5}, {}, {}, "");
  EXPECT_THAT(ConfigErrorOf([&] { CheckFits(Small(), job); }),
              AllOf(HasSubstr("layer 2 was head Linear with 20 parameters"),
                    HasSubstr("2 Linear with 25 parameters")));
  job.layers.pop_back();
  EXPECT_THAT(ConfigErrorOf([&] { CheckFits(Small(), job); }), HasSubstr("cuts 3 layers"));
}

TEST(SavedPlan, GivesTheKeysOfAJob) {
  const Value keys = KeysOf(Small());
  EXPECT_EQ(keys["partition"], Value::IntList({0, 2, 3}));
  EXPECT_EQ(keys["parallel"]["pipe"].as_int(), 2);
  EXPECT_EQ(keys["batch"]["size"].as_int(), 32);
  SavedPlan users = Small();
  users.schedule = "";
  EXPECT_FALSE(KeysOf(users).Has("schedule")) << "the job's own holds";
  EXPECT_THAT(SavedPlanText(Small()), AllOf(HasSubstr("0 to 1"), HasSubstr("pipe 2 x data 1")));
}

}  // namespace
}  // namespace strata
