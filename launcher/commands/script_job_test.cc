// Tests of command lines with a script, and of plans for placements.
#include "launcher/commands/script_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/testing.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_script.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Command& TestCommand() {
  static const Command command = {
      .name = "train",
      .usage = "SCRIPT [--flags]",
      .summary = "",
      .details = "",
      .flags = {NprocField(), ConfigField(), Field::Bool("json", "").Default(false)},
      .takes_job = true};
  return command;
}

std::string ErrorWith(const std::vector<std::string>& arguments) {
  return ConfigErrorOf([&] {
    ScriptArguments script = ParseScriptArguments(TestCommand(), arguments);
    script.flags.CheckAllTaken();
  });
}

TEST(ParseScriptArgumentsTest, TakesTheScriptAnywhere) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"a.lua", "--json", "--pipe=2"}, {"--json", "--pipe=2", "a.lua"}}) {
    const ScriptArguments script = ParseScriptArguments(TestCommand(), arguments);
    EXPECT_EQ(script.path, "a.lua");
    EXPECT_EQ(script.flags.own()["json"], Value(true));
    EXPECT_TRUE(script.flags.own()["nproc"].is_null());
    EXPECT_EQ(script.flags.job()["parallel"]["pipe"], Value(2));
  }
}

TEST(ParseScriptArgumentsTest, NeedsOneScript) {
  EXPECT_EQ(ErrorWith({}), "expected a script: strata train SCRIPT [--flags]");
  EXPECT_EQ(ErrorWith({"a.lua", "b.lua"}),
            "expected one script, got a.lua and b.lua; flags begin with --");
}

TEST(ParseScriptArgumentsTest, ShortFlags) {
  const ScriptArguments script = ParseScriptArguments(TestCommand(), {"-p", "2", "a.lua"});
  EXPECT_EQ(script.path, "a.lua");
  EXPECT_EQ(script.flags.job()["parallel"]["pipe"], Value(2));
  EXPECT_EQ(ParseScriptArguments(TestCommand(), {"--", "-p"}).path, "-p");
}

TEST(ParseScriptArgumentsTest, FlagsHoldOverTheConfigFile) {
  const std::string path = testing::TempDir() + "/config.json";
  std::ofstream(path) << R"({"steps": 5, "seed": 7, "optimizer": {"type": "AdamW", "params":
      {"lr": 0.5, "betas": [0.8, 0.9]}}, "losses": true, "partition": [0, 1, 2], "log": "a b"})";
  const ScriptArguments script =
      ParseScriptArguments(TestCommand(), {"a.lua", "--config=" + path, "--steps=6"});
  EXPECT_EQ(script.flags.job(),
            Value::FromJson(R"({"steps": 6, "seed": 7, "optimizer": {"1": "adamw", "lr": 0.5,
                "betas": [0.8, 0.9], "weight_decay": 0.0}, "losses": true, "partition": [0, 1, 2],
                "log": "a b"})"))
      << script.flags.job().ToJson();
  EXPECT_THAT(ErrorWith({"a.lua", "--config=/nowhere"}), HasSubstr("--config=/nowhere: No such"));
  for (const std::string& no_file : {testing::TempDir(), std::string("/dev/zero")}) {
    EXPECT_THAT(ErrorWith({"a.lua", "--config=" + no_file}),
                HasSubstr("--config=" + no_file + ": expected a file, this is a folder or"));
  }
  std::ofstream(path) << R"({"eval": {"samples": ["ab, cd"]}})";
  EXPECT_THAT(ErrorWith({"a.lua", "--config=" + path}),
              HasSubstr(R"(eval.samples: "ab, cd" in a list has a comma)"));
}

TEST(ParseScriptArgumentsTest, WrongFlags) {
  EXPECT_THAT(ErrorWith({"a.lua", "--nproc=many"}), AllOf(HasSubstr("nproc"), HasSubstr("many")));
  EXPECT_THAT(ErrorWith({"a.lua", "--nproc=0"}), HasSubstr("nproc"));
  EXPECT_THAT(ErrorWith({"a.lua", "--nprok=2"}), HasSubstr("nproc"));
  EXPECT_THAT(ErrorWith({"a.lua", "--pipe=x"}), HasSubstr("pipe"));
}

TEST(WithFlagsTest, WhatIsBehindTwoDashesStaysThere) {
  const std::vector<std::string> flags = {"--nproc=1", "--pipe=1"};
  EXPECT_THAT(WithFlags({"a.lua", "--pipe=2"}, flags),
              ElementsAre("a.lua", "--pipe=2", "--nproc=1", "--pipe=1"));
  EXPECT_THAT(WithFlags({"--pipe=2", "--", "a.lua"}, flags),
              ElementsAre("--pipe=2", "--nproc=1", "--pipe=1", "--", "a.lua"));
}

TEST(StateOptionsOfTest, NamesOfNumbersAreNoPaths) {
  const auto allowed = [](const std::string& text) {
    Value own = Flags({"--allow_read=" + text}, {AllowReadField()}).own();
    return StateOptionsOf(own.Set("script_timeout", 20.0)).allow_read;
  };
  EXPECT_THAT(allowed("sub,./2025"), ElementsAre("sub", "./2025"));
  for (const char* text : {"2025", "sub,2025"}) {
    EXPECT_THAT(ConfigErrorOf([&] { allowed(text); }),
                AllOf(HasSubstr("--allow_read: expected a path, got the number 2025"),
                      HasSubstr("./NAME")));
  }
}

Job TwoLayers() {
  Job job;
  job.input = TensorSpec{{4}, DType::kFloat32};
  job.layers = {MakeLayer("Linear", {4, 4}, {}, {}, ""), MakeLayer("Linear", {4, 2}, {}, {}, "")};
  job.parallel.pipe = 2;
  job.batch = {8, 2, 4};
  job.device = "cpu";
  return job;
}

TEST(PlanOnTest, RanksThatOthersStartAreNoThreads) {
  AnsweringScript script;
  Placement placement = {.launcher = "torchrun", .world_size = 2, .ranks = 1};
  placement.first.world_size = placement.first.local_world_size = 2;
  Job job = TwoLayers();
  EXPECT_EQ(PlanOn(placement, job, script).transport, "gloo");
  job.transport = "threads";
  EXPECT_THAT(ConfigErrorOf([&] { PlanOn(placement, job, script); }),
              HasSubstr("torchrun starts a process for each of the 2 ranks"));
  placement.world_size = 3;
  EXPECT_THAT(ConfigErrorOf([&] { PlanOn(placement, job, script); }), HasSubstr("3 ranks"));
}

Command PlacedCommand() {
  Command command = TestCommand();
  command.flags = PlacementFields();
  return command;
}

TEST(ParseScriptArgumentsTest, EveryShortFlag) {
  const std::tuple<const char*, const char*, const char*> flags[] = {
      {"-H", "hostfile", "hosts.txt"}, {"-i", "include", "a@b:0,2"}, {"-e", "exclude", "a:1"}};
  const Command command = PlacedCommand();
  for (const auto& [name, long_name, value] : flags) {
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {name, value, "a.lua"}, {"a.lua", name, value}, {"a.lua", "-p", "2", name, value}}) {
      const ScriptArguments script = ParseScriptArguments(command, arguments);
      EXPECT_EQ(script.path, "a.lua");
      EXPECT_EQ(script.flags.own()[long_name], Value(value)) << name;
    }
    EXPECT_THAT(ConfigErrorOf([&, &name = name] {
                  ParseScriptArguments(command, {"a.lua", name});
                }),
                HasSubstr(std::string("--") + long_name + " needs a value"))
        << name;
    // Commands that run on this machine only do not have these flags.
    EXPECT_THAT(ErrorWith({"a.lua", name, value}), HasSubstr(std::string("--") + long_name))
        << name;
  }
}

TEST(ParseScriptArgumentsTest, TheLastOfSeveralHolds) {
  const std::pair<std::vector<std::string>, int> cases[] = {
      {{"-p", "2", "--pipe=3"}, 3},          {{"--pipe=3", "-p", "2"}, 2},
      {{"--parallel.pipe=4", "-p", "2"}, 2}, {{"-p", "2", "--parallel.pipe", "4"}, 4},
      {{"-p", "2", "-p", "5"}, 5},
  };
  for (auto [arguments, pipe] : cases) {
    arguments.push_back("a.lua");
    EXPECT_EQ(ParseScriptArguments(TestCommand(), arguments).flags.job()["parallel"]["pipe"],
              Value(pipe));
  }
}

}  // namespace
}  // namespace strata::launcher
