// Tests of the strata binary with the real engine: the results of trainings. (strata_test.cc tests
// how its processes end.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/value.h"
#include "launcher/cli_testing.h"

namespace strata::launcher {
namespace {

using testing::ContainsRegex;
using testing::StartsWith;

/// The records of steps and evaluations in a training's log.
std::vector<Value> LogOf(std::vector<std::string> flags) {
  const std::string log = testing::TempDir() + "/log.jsonl";
  std::vector<std::string> arguments = {"train", kTiny, "--log=" + log, "--threads=1"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Ended ended = Strata(arguments);
  EXPECT_EQ(ended.code, 0) << ended.text;
  std::vector<Value> records;
  for (const std::string& line : Split(Trim(ReadFile(log)), '\n')) {
    Value record = Value::FromJson(line);
    if (!record.Has("run") && !record.Has("end")) records.push_back(std::move(record));
  }
  return records;
}

TEST(TrainTest, TheSameNumbersOverEveryTransport) {
  const std::vector<Value> one = LogOf({"--pipe=1"});
  ASSERT_EQ(one.size(), 6u);
  for (const char* transport : {"--transport=gloo", "--transport=threads"}) {
    const std::vector<Value> two = LogOf({"--pipe=2", transport});
    ASSERT_EQ(two.size(), 6u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(one[i]["loss"], two[i]["loss"]) << transport;
      EXPECT_EQ(one[i]["grad_norm"], two[i]["grad_norm"]) << transport;
    }
    EXPECT_EQ(one[5]["test_loss"], two[5]["test_loss"]) << transport;
  }
}

TEST(TrainTest, AFunctionalLayerTrainsAcrossProcesses) {
  const std::string script = testing::TempDir() + "/functional.lua";
  std::string text = ReadFile(kTiny);
  const size_t at = text.find("nn.Flatten{}");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "function(x) return x:flatten(1) end");
  std::ofstream(script) << text;
  const Ended ended = Strata({"train", script, "--transport=gloo"});
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text, ContainsRegex("accuracy [01]\\.[0-9]{3}\n"));
}

struct Verified {
  const char* schedule;
  const char* transport;
};

class VerifyTest : public testing::TestWithParam<Verified> {};

TEST_P(VerifyTest, EqualsOneStage) {
  const auto [schedule, transport] = GetParam();
  const Ended ended = Strata(
      {"verify", kTiny, "--pipe=3", Str("--schedule=", schedule), Str("--transport=", transport)});
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text, StartsWith(Str("equal bit for bit: pipe 3, ", schedule, ", ", transport,
                                         " and pipe 1, 1f1b, threads; 3 steps")));
}

INSTANTIATE_TEST_SUITE_P(All, VerifyTest,
                         testing::Values(Verified{"1f1b", "gloo"}, Verified{"gpipe", "gloo"},
                                         Verified{"1f1b", "threads"}, Verified{"gpipe", "threads"}),
                         [](const auto& info) {
                           return Str(info.param.schedule, "_", info.param.transport);
                         });

TEST(DoctorTest, NamesLibTorch) {
  EXPECT_THAT(Strata({"doctor"}).text, ContainsRegex("LibTorch +[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace strata::launcher
