// Tests of the strata binary as a user runs it: commands on a small script, and how its processes
// end. The engine is a fake one without LibTorch; engine_test.cc uses the real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "engine/base/text.h"
#include "engine/base/value.h"
#include "launcher/cli_testing.h"
#include "launcher/terminal/pty_child.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// While an object lives, the fake engine misbehaves as fake_engine_library.cc describes.
class Misbehave {
 public:
  explicit Misbehave(const std::string& words) { ::setenv("FAKE_ENGINE", words.c_str(), 1); }
  ~Misbehave() { ::unsetenv("FAKE_ENGINE"); }
};

std::string WriteScript(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string Replace(std::string text, const std::string& old, const std::string& by) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, old.size(), by);
}

constexpr const char* kFakeEngine = "launcher/libfake_engine.so";
const bool kIsFake = ::setenv("STRATA_ENGINE", kFakeEngine, 1) == 0;

class TransportsTrainTest : public testing::TestWithParam<const char*> {};

TEST_P(TransportsTrainTest, TrainsAndEvaluates) {
  const Ended ended = Strata({"train", kTiny, Str("--transport=", GetParam())});
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(StartsWith("tiny: 6 layers, 1,380 parameters, batch 32"),
                    HasSubstr(Str("over ", GetParam())), HasSubstr("step 1/5  loss 1.0000"),
                    HasSubstr("step 5/5  loss "), HasSubstr("bubble 20.0%"),
                    HasSubstr("test loss 0.2500  accuracy 0.975\n")));
}

INSTANTIATE_TEST_SUITE_P(All, TransportsTrainTest, testing::Values("gloo", "threads"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TrainTest, WhatIsNoOutputOfOursIsNotWrittenOver) {
  const std::string text = "length,kind\n1,rose\n", table = WriteScript("flowers.csv", text);
  const std::string script = WriteScript("own.lua", ReadFile(kTiny));
  const std::vector<std::string> kCases[] = {{"train", script, "--csv=" + table},
                                             {"train", script, "--log=" + script},
                                             {"train", script, "--trace=" + table},
                                             {"plan", script, "--svg=" + script},
                                             {"plan", script, "--html=" + table}};
  for (const std::vector<std::string>& arguments : kCases) {
    const Ended ended = Strata(arguments);
    EXPECT_EQ(ended.code, 2) << arguments[2];
    EXPECT_THAT(ended.text, HasSubstr(arguments[2] + ": this file exists and is no "));
  }
  EXPECT_EQ(ReadFile(table), text);
  EXPECT_EQ(ReadFile(script), ReadFile(kTiny));
  const std::string both = testing::TempDir() + "/both.x";
  EXPECT_THAT(Strata({"train", script, "--log=" + both, "--csv=" + both}).text,
              HasSubstr("name the same file"));
}

TEST(TrainTest, AFileBeyondItsLimitEndsItAndIsNamed) {
  const std::string log = testing::TempDir() + "/limited.jsonl";
  Child child(
      {"/bin/sh", "-c", Str("ulimit -f 1; exec launcher/strata train ", kTiny, " --log=", log)});
  EXPECT_THAT(child.Text(), HasSubstr(Str("strata: cannot write to the log ", log, ": File too")));
  EXPECT_EQ(child.Wait(), 1);
}

TEST(TrainTest, APrintOfTheScriptShowsOnce) {
  const std::string script = WriteScript("loud.lua", "print('hello')\n" + ReadFile(kTiny));
  const std::string text = Strata({"train", script, "--steps=1", "--transport=gloo"}).text;
  EXPECT_EQ(text.find("hello"), text.rfind("hello"));
  EXPECT_THAT(text, HasSubstr("hello\n"));
}

// The starter is not in the terminal's foreground process group, and `stty tostop` stops background
// processes that write.
TEST(TrainTest, APrintOfTheScriptStopsNothing) {
  const std::string script = WriteScript("tostop.lua", "print('hello')\n" + ReadFile(kTiny));
  PtyChild child({"/bin/sh", "-c", Str("stty tostop; exec launcher/strata train ", script)});
  child.ReadUntil("hello");
  child.ReadUntil("step 5/5");
  EXPECT_EQ(child.Wait(), 0);
}

TEST(TrainTest, ClosedStandardDescriptorsAreNoFilesOfOurs) {
  const std::string log = testing::TempDir() + "/closed.jsonl";
  for (const char* closed : {"<&-", ">&-", "<&- >&- 2>&-"}) {
    Child child(
        {"/bin/sh", "-c",
         Str("exec launcher/strata train ", kTiny, " --transport=gloo --log=", log, " ", closed)});
    child.Text();
    EXPECT_EQ(child.Wait(), 0) << closed;
    EXPECT_THAT(ReadFile(log), AllOf(StartsWith("{"), Not(HasSubstr("step 1/5")))) << closed;
  }
}

TEST(TrainTest, AnErrorOfTheScriptShowsOnceAndNothingStarts) {
  const std::string script =
      WriteScript("wrong.lua", "local strata = require 'strata'\nerror('oh')");
  const Ended ended = Strata({"train", script});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, AllOf(StartsWith("strata: "), HasSubstr("wrong.lua:2"), HasSubstr("oh")));
  EXPECT_EQ(Split(Trim(ended.text), '\n').size(), 1u) << ended.text;
}

TEST(TrainTest, WrongFlagsNameTheNearest) {
  const Ended ended = Strata({"train", kTiny, "--stepz=3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, AllOf(StartsWith("strata: "), HasSubstr("steps")));
  EXPECT_THAT(Strata({"train", kTiny, "--widht=3"}).text, HasSubstr("width"));
  EXPECT_THAT(Strata({"train", kTiny, "--nprok=3"}).text, HasSubstr("nproc"));
  EXPECT_THAT(Strata({"train", kTiny, "--zero=3"}).text, HasSubstr("expected 0, 1 or 2"));
  EXPECT_THAT(Strata({"train", "nothing.lua"}).text, HasSubstr("nothing.lua"));
}

TEST(TrainTest, AScriptThatDiffersEachTimeIsRefused) {
  const std::string script =
      WriteScript("moving.lua", Replace(ReadFile(kTiny), "\"tiny\"", "strata.read('name.txt')"));
  const std::string name = WriteScript("name.txt", "first");
  // Loading the engine writes to the file, after the starter's evaluation and before the ranks'.
  ::setenv("FAKE_ENGINE_TOUCHES", name.c_str(), 1);
  const Ended ended = Strata({"train", script, "--transport=gloo"});
  ::unsetenv("FAKE_ENGINE_TOUCHES");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, AllOf(HasSubstr("gives another job each time"), HasSubstr("name: "),
                                HasSubstr("touched")));
}

TEST(TrainTest, ARankThatFailsIsTheCause) {
  const Misbehave misbehave("fail=1:2");
  const Ended ended = Strata({"train", kTiny, "--transport=gloo", "--steps=1000000"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.text, HasSubstr("strata: rank 1: the fake engine fails\n"
                                    "where the others were:\n"
                                    "  rank 0 (stage 0): 0F0\n"));
}

TEST(TrainTest, ARankThatCrashesIsTheCause) {
  const Misbehave misbehave("crash=0:1");
  const Ended ended = Strata({"train", kTiny, "--transport=gloo", "--steps=1000000"});
  EXPECT_EQ(ended.code, 134);
  EXPECT_THAT(ended.text, HasSubstr("strata: rank 0 (stage 0) was ended by signal 6 (SIGABRT)"));
}

TEST(TrainTest, CtrlCEndsEverything) {
  LongTraining training;
  ASSERT_EQ(training.ranks.size(), 2u);
  training.Kill(SIGINT);
  EXPECT_EQ(training.Cause(), "strata: interrupted\n");
  EXPECT_EQ(training.Wait(), 130);
  for (pid_t pid : training.ranks) EXPECT_TRUE(Ends(pid));
}

TEST(TrainTest, NothingOutlivesTheLauncherNotEvenAStoppedRank) {
  LongTraining training;
  ASSERT_EQ(training.ranks.size(), 2u);
  ::kill(training.ranks[0], SIGSTOP);
  training.Kill(SIGKILL);
  for (pid_t pid : training.ranks) EXPECT_TRUE(Ends(pid));
  EXPECT_TRUE(Ends(training.starter));
}

TEST(TrainTest, AStoppedRankIsKilledWhenAnotherFails) {
  LongTraining training;
  ASSERT_EQ(training.ranks.size(), 2u);
  StopAndWait(training.ranks[0]);
  ::kill(training.ranks[1], SIGKILL);
  EXPECT_THAT(training.Cause(),
              AllOf(StartsWith("strata: rank 1 (stage 1) was ended by signal 9"),
                    HasSubstr("rank 0 (stage 0): no answer; it is stopped or stuck")));
  EXPECT_EQ(training.Wait(), 137);
}

class TransportsVerifyTest : public testing::TestWithParam<const char*> {};

TEST_P(TransportsVerifyTest, EqualsOneStage) {
  const Ended ended = Strata({"verify", kTiny, "--pipe=3", Str("--transport=", GetParam())});
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_EQ(
      ended.text,
      Str("equal bit for bit: pipe 3, 1f1b, ", GetParam(),
          " and pipe 1, 1f1b, threads; 3 steps, losses, gradients and parameters (1 tensor)\n"));
}

INSTANTIATE_TEST_SUITE_P(All, TransportsVerifyTest, testing::Values("gloo", "threads"),
                         [](const auto& info) { return std::string(info.param); });

TEST(VerifyTest, NamesTheFirstDifference) {
  const Misbehave misbehave("differ=2:1");
  const Ended ended = Strata({"verify", kTiny});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.text,
            "DIFFERENT: pipe 2, 1f1b, gloo and pipe 1, 1f1b, threads\n"
            "step 1: the loss of micro-batch 0 differs: 1.5 with pipe 2, 1f1b, gloo, 0.5 with pipe "
            "1, 1f1b, threads\n");
}

TEST(VerifyTest, SavesNothing) {
  const std::string saves = testing::TempDir() + "/verify_saves";
  for (const std::string& flag : {"--save.dir=" + saves, "--save=" + saves}) {
    const Ended ended = Strata({"verify", kTiny, flag});
    EXPECT_EQ(ended.code, 0) << ended.text;
  }
  EXPECT_FALSE(std::filesystem::exists(saves));
}

TEST(VerifyTest, TheScriptMayStandBehindTwoDashes) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"verify", kTiny, "--"}, {"verify", "--pipe=3", "--", kTiny}}) {
    EXPECT_THAT(Strata(arguments).text, StartsWith("equal bit for bit"));
  }
}

TEST(VerifyTest, AFailureIsNoVerdict) {
  const Misbehave misbehave("fail=1:1");
  const Ended ended = Strata({"verify", kTiny});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.text, StartsWith("strata: rank 1: the fake engine fails\n"));
}

TEST(PlanTest, ShowsCutsAndSchedule) {
  const Ended ended = Strata({"plan", kTiny, "--width=32"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.text, AllOf(HasSubstr("parameters per layer: 0,2080,0,1056,0,132\n"),
                                HasSubstr("cuts: 0,"), HasSubstr("rank 1 |")));
}

TEST(PlanTest, Json) {
  const Ended ended = Strata({"plan", "--json", kTiny, "--partition=0,2,6"});
  EXPECT_EQ(ended.code, 0);
  const Value plan = Value::FromJson(ended.text);
  EXPECT_EQ(plan["bounds"].ToJson(), "[0,2,6]");
  EXPECT_EQ(plan["layers"].as_list().size(), 6u);
}

TEST(PlanTest, WritesPictures) {
  const std::string svg = testing::TempDir() + "/plan.svg",
                    html = testing::TempDir() + "/plan.html";
  const Ended ended = Strata({"plan", kTiny, "--svg=" + svg, "--html=" + html});
  EXPECT_EQ(ended.code, 0) << ended.text;
  std::string first;
  std::getline(std::ifstream(svg), first);
  EXPECT_THAT(first, StartsWith("<svg "));
  std::getline(std::ifstream(html), first, '>');
  EXPECT_EQ(first, "\n<!doctype html");
}

TEST(TrainTest, PicturesNeedATrace) {
  const Ended ended = Strata({"train", kTiny, "--svg=plan.svg"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, HasSubstr("which --trace=FILE records"));
}

TEST(PlanTest, AProcessThatMeasuresEndsWithItsLauncher) {
  const Misbehave misbehave("measure=0:0");
  ::setenv("STRATA_CACHE", (testing::TempDir() + "/measured").c_str(), 1);  // an empty cache
  Child child(StrataCommand({"plan", kTiny, "--partition=time"}));
  ::unsetenv("STRATA_CACHE");
  ASSERT_EQ(child.Line(), "measuring");
  const std::vector<pid_t> measuring = ChildrenOf(child.pid());
  ASSERT_EQ(measuring.size(), 1u);
  child.Kill(SIGKILL);
  EXPECT_TRUE(Ends(measuring[0]));
}

TEST(PlanTest, AFileThatCannotBeWrittenIsNamedBeforeItMeasures) {
  const Misbehave misbehave("measure=0:0");
  ::setenv("STRATA_CACHE", (testing::TempDir() + "/unmeasured").c_str(), 1);  // an empty cache
  const Ended ended = Strata({"plan", kTiny, "--write_costs=/no/folder/costs.json"});
  ::unsetenv("STRATA_CACHE");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.text, StartsWith("strata: cannot write to /no/folder/costs.json: "));
}

TEST(PlanTest, MoreStagesThanLayers) {
  const Ended ended = Strata({"plan", kTiny, "--pipe=7"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, StartsWith("strata: "));
}

TEST(RunTest, GivesTheArguments) {
  const std::string script = WriteScript("args.lua", "print(#arg, arg[1], arg[2])");
  const Ended ended = Strata({"run", script, "--help", "two"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.text, "2\t--help\ttwo\n");
}

TEST(TrainTest, AFullDiskEndsItAndNamesTheFile) {
  const Ended ended = Strata({"train", kTiny, "--log=/dev/full"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.text, HasSubstr("strata: cannot write to the log /dev/full: No space left"));
}

TEST(MainTest, AFullDiskIsNoSuccess) {
  const std::string script = WriteScript("speaks.lua", "print('a word')");
  const std::vector<std::string> kCases = {"run " + script, "help train", "version", "help --json"};
  for (const std::string& arguments : kCases) {
    Child child({"/bin/sh", "-c", Str("launcher/strata ", arguments, " >/dev/full")});
    EXPECT_EQ(child.Text(), "strata: cannot write to standard output\n") << arguments;
    EXPECT_EQ(child.Wait(), 1) << arguments;
  }
}

TEST(RunTest, AnErrorShowsItsPlace) {
  const std::string script = WriteScript("fails.lua", "\nerror('no')");
  const Ended ended = Strata({"run", script});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.text, AllOf(StartsWith("strata: "), HasSubstr("fails.lua:2"), HasSubstr("no")));
}

TEST(RunTest, CtrlCEndsAnEndlessLoop) {
  const std::string script = WriteScript("loop.lua", "print('ready')\nwhile true do end");
  Child child(StrataCommand({"run", script}));
  EXPECT_EQ(child.Line(), "ready");
  child.Kill(SIGINT);
  EXPECT_EQ(child.Text(), "strata: interrupted\n");
  EXPECT_EQ(child.Wait(), 130);
}

TEST(RunTest, ASecondCtrlCEndsARunawayPattern) {
  const std::string script = WriteScript(
      "pattern.lua", "print('ready')\nlocal s = ('a'):rep(30000) s:find(('.-'):rep(12) .. 'b')");
  Child child(StrataCommand({"run", script}));
  EXPECT_EQ(child.Line(), "ready");
  siginfo_t ended = {};
  while (::waitid(P_PID, static_cast<id_t>(child.pid()), &ended, WEXITED | WNOHANG | WNOWAIT) ==
             0 &&
         ended.si_pid == 0) {
    child.Kill(SIGINT);  // repeated, because a pending signal absorbs the next one
  }
  EXPECT_EQ(child.Text(), "strata: interrupted\n");
  EXPECT_EQ(child.Wait(), -SIGINT);
}

TEST(ReplTest, AnErrorIsRememberedInTheExitCode) {
  const Ended ended = Strata({"repl"}, "nothing.at_all\n'after'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.text, AllOf(HasSubstr("nothing"), HasSubstr("after")));
}

TEST(DoctorTest, NamesTheEngine) {
  EXPECT_THAT(Strata({"doctor"}).text,
              AllOf(ContainsRegex("LibTorch +fake\n"), ContainsRegex("memory +[0-9]")));
  EXPECT_TRUE(Value::FromJson(Strata({"doctor", "--json"}).text).is_list());
}

TEST(DoctorTest, MeasuresLinks) {
  const std::string file = testing::TempDir() + "/doctor_links.json";
  const Ended shown = Strata({"doctor", "--links", "--ranks=3", "--output=" + file});
  EXPECT_EQ(shown.code, 0) << shown.text;
  EXPECT_THAT(shown.text, AllOf(ContainsRegex("\\(rank 1\\) +.*\\(rank 2\\) +20 us +3 GB/s"),
                                HasSubstr("over gloo"), HasSubstr("--links=" + file)));
  const Value links = Value::FromJson(ReadFile(file));
  EXPECT_EQ(links["pairs"].as_list().size(), 3u);
  EXPECT_EQ(Value::FromJson(Strata({"doctor", "--links", "--ranks=3", "--json"}).text), links);
  EXPECT_EQ(Strata({"plan", kTiny, "--pipe=3", "--links=" + file}).code, 0);
  const Ended fewer = Strata({"plan", kTiny, "--pipe=4", "--links=" + file});
  EXPECT_EQ(fewer.code, 2);
}

TEST(DoctorTest, WrongWordsAboutLinks) {
  const auto error = [](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"doctor"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ended ended = Strata(arguments);
    EXPECT_NE(ended.code, 0);
    return ended.text;
  };
  EXPECT_THAT(error({"--ranks=2"}), HasSubstr("--ranks belongs to --links"));
  EXPECT_THAT(error({"--links", "--ranks=1"}), HasSubstr("at least 2"));
  EXPECT_THAT(error({"--link"}), HasSubstr("did you mean \"links\""));
  EXPECT_THAT(error({"--links", "--hostfile=/no/hosts"}), HasSubstr("--hostfile=/no/hosts"));
  EXPECT_THAT(error({"--links", "--transport=glo"}), HasSubstr("\"gloo\""));
  const Misbehave fails("fail=1:0");
  EXPECT_THAT(error({"--links", "--ranks=2"}), HasSubstr("rank 1"));
  EXPECT_THAT(error({"--links", "--ranks=2", "--output=/no/folder/links.json"}),
              HasSubstr("cannot write to /no/folder/links.json"))
      << "before it measures";
}

TEST(HelpTest, EveryCommandHasOne) {
  for (const char* command : {"train", "plan", "repl", "verify", "run", "doctor", "worker"}) {
    const Ended ended = Strata({command, "--help"});
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(ended.text, StartsWith(Str("Usage: strata ", command)));
  }
}

}  // namespace
}  // namespace strata::launcher
