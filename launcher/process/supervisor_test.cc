// Tests Supervise() from outside: the tests run fake_job, a launcher whose ranks do what the
// command line says.
#include "launcher/process/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "launcher/process/child.h"

namespace strata::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::StartsWith;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Words = std::vector<std::string>;

Words Command(Words words) {
  words.insert(words.begin(), "launcher/process/fake_job");
  return words;
}
Words Command(const std::string& words) { return Command(Split(words, ' ')); }

/// A running fake_job.
class FakeJob : public Child {
 public:
  explicit FakeJob(const std::string& words, Output output = Output::kEmpty)
      : Child(Command(words), "", output) {}
  explicit FakeJob(Words words) : Child(Command(std::move(words))) {}

  /// The pids that `count` processes print.
  std::vector<pid_t> Pids(int count) {
    std::vector<pid_t> pids;
    while (static_cast<int>(pids.size()) < count) {
      const std::string line = Line();
      if (line.empty()) break;
      const size_t at = line.find("pid ");
      if (at != std::string::npos) pids.push_back(std::stoi(line.substr(at + 4)));
    }
    return pids;
  }
};

/// A job, the lines that it shows and its exit code.
struct Ending {
  const char* name;
  const char* words;
  testing::Matcher<const std::vector<std::string>&> lines;
  int exit_code;
};

class EndingTest : public testing::TestWithParam<Ending> {};

TEST_P(EndingTest, ShowsTheCauseOnceWithItsExitCode) {
  FakeJob job(GetParam().words);
  EXPECT_THAT(job.Lines(), GetParam().lines);
  EXPECT_EQ(job.Wait(), GetParam().exit_code);
}

/// Matches output whose only line is a cause that begins with `text`.
testing::Matcher<const std::vector<std::string>&> Cause(const std::string& text) {
  return ElementsAre(StartsWith("cause: " + text));
}

const char* const kOthers = "where the others were:";

INSTANTIATE_TEST_SUITE_P(
    All, EndingTest,
    testing::Values(
        Ending{"Done", "ranks=3 0:say=a 1:say=b",
               IsSupersetOf({"said 0: a", "said 1: b", "cause: "}), 0},
        Ending{"OutputIsForwardedLineByLineWithItsRank",
               "ranks=2 0:print=zero 1:warn=one 0:part=half 0:print=line 1:part=unfinished",
               IsSupersetOf({"stdout 0: zero", "stdout 0: halfline", "stderr 1: one",
                             "stdout 1: unfinished"}),
               0},
        Ending{
            "WhatWasSaidBeforeAnErrorIsHeard",
            "ranks=1 0:say=first 0:print=second 0:warn=third 0:world=disk",
            IsSupersetOf({"said 0: first", "stdout 0: second", "stderr 0: third", "cause: disk"}),
            1},
        Ending{"WhatWasPrintedBeforeACrashIsHeard", "ranks=1 0:print=last 0:signal=11",
               ElementsAre("stdout 0: last", "cause: rank 0 was ended by signal 11 (SIGSEGV)"),
               139},
        Ending{"ManyRanks", "ranks=24 23:exit=9 0:wait 7:wait",
               Contains("cause: rank 23 exited with code 9 without saying why"), 9},
        Ending{"AWrongScript", "starter:config=wrong", Cause("wrong"), 2},
        Ending{"AStartersError", "starter:world=memory", Cause("memory"), 1},
        Ending{"ABug", "starter:bug=oops", Cause("a bug in Strata: oops"), 1},
        Ending{"AStarterThatCrashes", "starter:signal=11",
               Cause("the process that evaluated the script was ended by signal 11"), 139},
        Ending{"AStarterThatExits", "starter:exit=3",
               Cause("the process that evaluated the script exited with code 3"), 3},
        Ending{"AStarterThatExitsWell", "starter:exit=0",
               Cause("the process that evaluated the script exited with code 0"), 1},
        Ending{"AScriptWithoutEnd", "prepare=0.2 starter:busy",
               Cause("evaluating the script, planning and measuring took more than 200 ms"), 1},
        Ending{"AnErrorOfTheOnlyRank", "ranks=1 0:world=disk", Cause("disk"), 1},
        Ending{
            "AFailingRankWakesTheOthers", "ranks=3 0:wait 1:after=0 1:after=2 1:world=disk 2:wait",
            ElementsAre("cause: rank 1: disk", kOthers, "  rank 0: asleep", "  rank 2: asleep"), 1},
        Ending{"RanksOfOtherLaunchersAreLeftOut",
               "ranks=2 first=3 world=6 3:wait 4:after=3 4:world=disk",
               ElementsAre("cause: rank 4: disk", kOthers, "  rank 3: asleep"), 1},
        Ending{"TheOnlyRankOfThisLauncher", "ranks=1 first=1 world=2 1:print=here 1:exit=7",
               ElementsAre("stdout 1: here", "cause: rank 1 exited with code 7 without saying why"),
               7},
        Ending{"AConfigErrorOfARank", "ranks=2 0:wait 1:config=wrong",
               Contains("cause: rank 1: wrong"), 2},
        // A failing rank closes its connections before it reports its error. So its peer's report
        // may come first.
        Ending{"ThePeersReportBeforeTheCause", "ranks=3 0:lose=1 1:late=wrong 2:wait",
               ElementsAre("cause: rank 1: wrong", kOthers, "  rank 0: asleep", "  rank 2: asleep"),
               2},
        Ending{"ARankThatNeverBecomesReadyEndsBeforeTheGrace",
               "grace=1000 ranks=2 0:world=disk 1:unready 1:busy",
               ElementsAre("cause: rank 0: disk", kOthers, "  rank 1: starting"), 1},
        Ending{"ARankThatCannotBeWokenYetSaysWhereItIs",
               "grace=1000 ranks=2 roles=left,right 0:after=1 0:signal=11 1:unready "
               "1:meeting=rank_1:_meets 1:wait",
               ElementsAre("cause: rank 0 (left) was ended by signal 11 (SIGSEGV)", kOthers,
                           "  rank 1: meets"),
               139},
        Ending{"ALostConnectionThatNobodyExplains", "ranks=3 0:wait 1:after=0 1:lose=2 2:wait",
               Contains("cause: rank 1 lost rank 2"), 1},
        Ending{"RanksThatCannotBeWokenAreKilled", "grace=0.2 ranks=3 0:busy 1:exit=4 2:signal=19",
               Contains("cause: rank 1 exited with code 4 without saying why"), 4},
        // Messages that only the starter may send, and one that only a rank may.
        Ending{"ARankCannotSpeakForTheStarter",
               "ranks=2 0:send={\"type\":\"rank_exited\",\"rank\":1,\"status\":9,\"text\":\"a\"} "
               "0:send={\"type\":\"rank_started\",\"rank\":9,\"ranks\":9,\"text\":\"b\"}",
               ElementsAre("said 0: a", "said 0: b", "cause: "), 0},
        Ending{"TheStarterCannotSpeakForARank",
               "starter:send={\"type\":\"done\",\"text\":\"a\"} "
               "starter:send={\"type\":\"position\",\"text\":\"b\"} ranks=1",
               ElementsAre("said -1: a", "said -1: b", "cause: "), 0},
        Ending{"AListenerThatThrows", "ranks=2 0:say=refuse 0:wait 1:wait",
               Contains("cause: the listener refuses"), 1},
        Ending{"AListenerThatThrowsInMidTraining",
               "ranks=1 0:say=one 0:stoppable=refuse 0:stopped 0:say=saved",
               ElementsAre("said 0: one", "no more files", "said 0: saved",
                           "cause: the listener refuses"),
               1},
        Ending{"AListenerThatThrowsTwice",
               "ranks=1 0:say=one 0:stoppable=refuse 0:say=refuse 0:wait",
               ElementsAre("said 0: one", "no more files", "cause: the listener refuses"), 1},
        // Under an outside launcher each rank has its own launcher process, and only one of them
        // gets the signal.
        Ending{"ARankThatEndsEarlyBecauseAnotherWasAskedTo",
               "ranks=1 first=1 world=2 1:stopped 1:say=saved",
               ElementsAre("said 1: saved", "cause: ended by signal 15 (SIGTERM)"), 143}),
    [](const auto& info) { return std::string(info.param.name); });

// A rank with damaged memory may send anything. The launcher must neither crash nor hang.
class NonsenseTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(NonsenseTest, EndsTheJobWithItsText) {
  FakeJob job(Str("ranks=2 0:wait 1:", GetParam().first, " 1:wait"));
  EXPECT_THAT(job.Lines(), Cause(GetParam().second));
  EXPECT_EQ(job.Wait(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, NonsenseTest,
    testing::Values(
        std::pair("raw=hello", "expected a message, got \"hello\""),
        std::pair("raw=", "expected a message, got \"\""),
        std::pair("raw={\"type\":\"a\",\"fds\":7}", "expected a message, got"),
        std::pair("raw={\"type\":", "expected a message, got"),
        std::pair("raw=[1,2]", "expected a message, got \"[1,2]\""),
        std::pair("raw=\x01\xff\xfe", "expected a message, got"),
        std::pair("send={}", "expected a message, got \"{}\""),
        std::pair("send={\"type\":7}", "expected a message, got"),
        std::pair("send={\"type\":\"error\"}", "rank 1 sent a message that makes no sense"),
        std::pair("send={\"type\":\"position\"}", "rank 1 sent a message that makes no sense")),
    [](const auto& info) { return Str("Case", info.index); });

TEST(SupervisorTest, NoLineOfAFloodIsLostOrOutOfOrder) {
  constexpr int kCount = 20'000;
  FakeJob job(Str("ranks=2 0:count=", kCount, " 1:count=", kCount));
  std::array<int, 2> next = {0, 0};
  for (const std::string& line : job.Lines()) {
    const int rank = line.rfind("stdout 1", 0) == 0 ? 1 : 0;
    if (line.rfind("cause", 0) == 0) continue;
    EXPECT_EQ(line, Str("stdout ", rank, ": ", next[static_cast<size_t>(rank)]++));
  }
  EXPECT_THAT(next, ElementsAre(kCount, kCount));
  EXPECT_EQ(job.Wait(), 0);
}

TEST(SupervisorTest, AMessageMayBeLong) {
  FakeJob job("ranks=1 0:long=3000000");
  EXPECT_EQ(job.Line().size(), std::string("said 0: ").size() + 3'000'000);
  EXPECT_EQ(job.Line(), "cause: ");
}

TEST(SupervisorTest, ASignalledRankIsTheCauseNotThePeersWhoLostIt) {
  for (int i = 0; i < 20; ++i) {
    FakeJob job("ranks=3 0:peer=1 1:signal=9 2:peer=1");
    EXPECT_THAT(job.Lines(), Contains(StartsWith("cause: rank 1 was ended by signal 9 (SIGKILL)")));
    EXPECT_EQ(job.Wait(), 137);
  }
}

TEST(SupervisorTest, TheFirstErrorIsTheCauseNotThePeersWhoLostTheRank) {
  for (int i = 0; i < 20; ++i) {
    FakeJob job("ranks=3 0:peer=2 1:peer=2 2:world=disk");
    EXPECT_THAT(job.Lines(), Contains("cause: rank 2: disk"));
    EXPECT_EQ(job.Wait(), 1);
  }
}

// The same as before, but the rank has not called OnAbort() yet.
TEST(SupervisorTest, ARankThatFailsWhileItStartsHasItsLastWord) {
  for (int i = 0; i < 10; ++i) {
    FakeJob job("ranks=2 0:lose=1 1:unready 1:outlive=0 1:config=wrong");
    EXPECT_THAT(job.Lines(), Contains("cause: rank 1: wrong"));
    EXPECT_EQ(job.Wait(), 2);
  }
}

// Endless lines, bytes that are not text, and then a crash.
TEST(SupervisorTest, OutputWithoutAnEndIsCutAndNothingOfItIsLost) {
  constexpr size_t kBytes = 3'000'000;
  FakeJob job(Str("ranks=2 0:fill=", kBytes, " 0:signal=11 1:wait"));
  size_t bytes = 0;
  for (const std::string& line : job.Lines()) {
    const std::string head = "stdout 0: ";
    if (line.rfind(head, 0) == 0) bytes += line.size() - head.size();
    EXPECT_LT(line.size(), 1u << 18);
  }
  EXPECT_EQ(bytes, kBytes);
  EXPECT_EQ(job.Wait(), 139);
}

// The usual limit of descriptors is too low for many ranks, so the launcher raises it.
TEST(SupervisorTest, ManyRanksNeedManyDescriptors) {
  constexpr int kRanks = 40;
  rlimit before = {}, few = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 2 * kRanks;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Words words = {Str("ranks=", kRanks)};
  for (int rank = 0; rank < kRanks; ++rank) words.push_back(Str(rank, ":print=here"));
  FakeJob job(words);
  ::setrlimit(RLIMIT_NOFILE, &before);
  const std::vector<std::string> lines = job.Lines();
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.ends_with("here"); }),
            kRanks);
  EXPECT_EQ(job.Wait(), 0);
}

// A rank that ignores all signals except SIGKILL.
TEST(SupervisorTest, ARankThatIgnoresSignalsIsEnded) {
  FakeJob job("grace=0.1 ranks=2 0:deaf 0:pid 0:busy 1:wait");
  const std::vector<pid_t> pids = job.Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  ::kill(pids[0], SIGTERM);  // as a user might do
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), Contains("cause: ended by signal 15 (SIGTERM)"));
  EXPECT_EQ(job.Wait(), 143);
  EXPECT_TRUE(Ends(pids[0]));
}

struct Signal {
  int number;
  const char* cause;
};

class SignalTest : public testing::TestWithParam<Signal> {};

TEST_P(SignalTest, EndsEverything) {
  FakeJob job("ranks=3 0:pid 0:starter_pid 1:pid 2:pid 0:wait 1:busy 2:signal=19");
  const std::vector<pid_t> pids = job.Pids(4);
  ASSERT_EQ(pids.size(), 4u);
  const double start = Now();
  job.Kill(GetParam().number);
  EXPECT_THAT(job.Lines(), Contains(std::string("cause: ") + GetParam().cause));
  EXPECT_EQ(job.Wait(), 128 + GetParam().number);
  for (pid_t pid : pids) EXPECT_TRUE(Ends(pid)) << pid;
  RecordProperty("seconds", std::to_string(Now() - start));
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalTest,
                         testing::Values(Signal{SIGINT, "interrupted"},
                                         Signal{SIGTERM, "ended by signal 15 (SIGTERM)"},
                                         Signal{SIGHUP, "ended by signal 1 (SIGHUP)"}),
                         [](const auto& info) { return Str("Signal", info.param.number); });

/// Waits for a line with this text.
void Await(FakeJob& job, const std::string& expected) {
  std::string line;
  do {
    line = job.Line();
  } while (!line.empty() && line != expected);
  EXPECT_EQ(line, expected);
}

TEST(StopTest, SigtermLetsRanksEndWell) {
  FakeJob job("ranks=2 0:stoppable 0:stopped 0:say=saved 1:say=done");
  Await(job, "said 0: stoppable");
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), IsSupersetOf({"said 0: saved", "cause: ended by signal 15 (SIGTERM)"}));
  EXPECT_EQ(job.Wait(), 143);
}

TEST(StopTest, WhatCameToItsEndAllTheSameIsWell) {
  FakeJob job("ranks=1 0:stoppable 0:say=done");
  Await(job, "said 0: stoppable");
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), IsSupersetOf({"said 0: done", "cause: "}));
  EXPECT_EQ(job.Wait(), 0);
}

// A service manager, a batch system or a container runtime sends the signal to every process.
TEST(StopTest, ASigtermToAllProcessesLetsRanksEndWell) {
  FakeJob job("ranks=1 0:pid 0:starter_pid 0:stoppable 0:say=saved 0:wait");
  const std::vector<pid_t> pids = job.Pids(2);
  ASSERT_EQ(pids.size(), 2u);
  Await(job, "said 0: stoppable");
  for (pid_t pid : pids) ::kill(pid, SIGTERM);
  job.Kill(SIGTERM);
  Await(job, "said 0: saved");
  for (pid_t pid : pids) ::kill(pid, SIGTERM);
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), Contains("cause: ended by signal 15 (SIGTERM)"));
  EXPECT_EQ(job.Wait(), 143);
  for (pid_t pid : pids) EXPECT_TRUE(Ends(pid)) << pid;
}

// As in `strata train | tee log`: the signal ends `tee` too.
TEST(StopTest, AReaderThatEndsLosesNoSave) {
  const std::string marker = Str("saved", ::getpid());
  FakeJob job(Str("ranks=1 0:stoppable 0:say=saving 0:count=100000 0:touch=", marker,
                  " 0:stopped 0:say=saved"));
  Await(job, "said 0: stoppable");
  job.StopReading();
  job.Kill(SIGTERM);
  EXPECT_EQ(job.Wait(), 143);
  EXPECT_EQ(::unlink(marker.c_str()), 0) << "the rank was killed before it had saved";
}

// As in `strata train | head -1`, where a program usually ends by SIGPIPE.
TEST(SupervisorTest, AReaderThatEndsEndsTheJob) {
  FakeJob job("grace=0.1 ranks=1 0:pid 0:starter_pid 0:count=100000 0:busy");
  const std::vector<pid_t> pids = job.Pids(2);
  ASSERT_EQ(pids.size(), 2u);
  job.StopReading();
  EXPECT_EQ(job.Wait(), -SIGPIPE);  // when the line with the cause is written, after Supervise()
  for (pid_t pid : pids) EXPECT_TRUE(Ends(pid)) << pid;
}

TEST(StopTest, AFailureOnTheWayIsTheCause) {
  FakeJob job("ranks=1 0:stoppable 0:world=disk");
  Await(job, "said 0: stoppable");
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), Contains("cause: disk"));
  EXPECT_EQ(job.Wait(), 1);
}

TEST(StopTest, TheSecondSignalDoesNotWait) {
  FakeJob job("ranks=1 0:stoppable 0:say=stopping 0:wait");
  Await(job, "said 0: stoppable");
  job.Kill(SIGTERM);
  Await(job, "said 0: stopping");
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), Contains("cause: ended by signal 15 (SIGTERM)"));
  EXPECT_EQ(job.Wait(), 143);
}

TEST(StopTest, CtrlCDoesNotWait) {
  FakeJob job("grace=0.2 ranks=1 0:stoppable 0:wait");
  Await(job, "said 0: stoppable");
  job.Kill(SIGINT);
  EXPECT_THAT(job.Lines(), Contains("cause: interrupted"));
  EXPECT_EQ(job.Wait(), 130);
}

TEST(SupervisorTest, WhoKeepsNoRecordsSaysSo) {
  FakeJob job("ranks=1 0:pid 0:wait");
  ASSERT_EQ(job.Pids(1).size(), 1u);
  job.Kill(SIGQUIT);
  Await(job, "stdout -1: SIGQUIT: this command keeps no flight records");
  job.Kill(SIGINT);
  EXPECT_EQ(job.Wait(), 130);
}

TEST(SupervisorTest, BeforeRanksRunThereIsNoRecord) {
  FakeJob job("record starter:say=here starter:busy");
  Await(job, "said -1: here");
  job.Kill(SIGQUIT);
  Await(job, "stdout -1: SIGQUIT: no rank runs yet");
}

// As in `strata train F.lua > log` on a full disk.
TEST(StopTest, AnOutputThatCannotBeWrittenLosesNoSave) {
  const std::string marker = Str("kept", ::getpid());
  Child job({"/bin/sh", "-c",
             Str("exec launcher/process/fake_job ranks=1 0:stoppable 0:touch=", marker,
                 " 0:stopped >/dev/full")});
  EXPECT_EQ(job.Wait(), 1);
  EXPECT_EQ(::unlink(marker.c_str()), 0);
}

// The answer arrives after the record that requested it was written; it must not appear in the next
// one.
TEST(SupervisorTest, ALateAnswerIsInNoRecord) {
  const std::string marker = Str("late", ::getpid());
  FakeJob job(Str("record ranks=1 0:savable 0:slow=", marker, " 0:pid 0:busy"));
  const std::vector<pid_t> pids = job.Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  job.Kill(SIGQUIT);
  Await(job, "stdout -1: positions: unknown");
  job.Kill(SIGUSR1);  // the rank reads it after the request
  std::ofstream(marker).flush();
  Await(job, "said 0: saved");
  ::kill(pids[0], SIGKILL);
  EXPECT_THAT(job.Lines(),
              testing::AllOf(Contains(StartsWith("cause: rank 0 was ended by signal 9")),
                             Contains("positions: unknown")));
  EXPECT_EQ(job.Wait(), 137);
  ::unlink(marker.c_str());
}

TEST(SupervisorTest, CtrlCWhileTheScriptIsEvaluated) {
  FakeJob job("starter:pid starter:busy");
  const std::vector<pid_t> pids = job.Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  job.Kill(SIGINT);
  EXPECT_THAT(job.Lines(), ElementsAre("cause: interrupted"));
  EXPECT_EQ(job.Wait(), 130);
  EXPECT_TRUE(Ends(pids[0]));
}

TEST(SupervisorTest, TheSecondCtrlCDoesNotWait) {
  FakeJob job("grace=1000 ranks=1 0:pid 0:busy");
  ASSERT_EQ(job.Pids(1).size(), 1u);
  job.Kill(SIGINT);
  job.Kill(SIGTERM);  // a different signal, since two equal pending signals are merged
  EXPECT_THAT(job.Lines(), ElementsAre(HasSubstr("cause: ")));
  EXPECT_GT(job.Wait(), 128);
}

TEST(SupervisorTest, AnIgnoredCtrlCStaysIgnored) {
  ::signal(SIGINT, SIG_IGN);  // as a shell does for a background job
  FakeJob job("ranks=1 0:pid 0:wait");
  ::signal(SIGINT, SIG_DFL);
  ASSERT_EQ(job.Pids(1).size(), 1u);
  job.Kill(SIGINT);
  job.Kill(SIGTERM);
  EXPECT_THAT(job.Lines(), Contains("cause: ended by signal 15 (SIGTERM)"));
  EXPECT_EQ(job.Wait(), 143);
}

// If SIGCHLD is ignored, the kernel discards the exit status of children.
TEST(SupervisorTest, AnIgnoredSigchldHidesNoEnd) {
  ::signal(SIGCHLD, SIG_IGN);  // as some service managers do
  FakeJob job("ranks=2 0:pid 0:wait 1:wait");
  ::signal(SIGCHLD, SIG_DFL);
  const std::vector<pid_t> pids = job.Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  ::kill(pids[0], SIGUSR2);
  EXPECT_THAT(job.Lines(), Contains(StartsWith("cause: rank 0 was ended by signal 12 (SIGUSR2)")));
  EXPECT_EQ(job.Wait(), 128 + SIGUSR2);
}

// The standard input belongs to the launcher.
TEST(SupervisorTest, RanksTakeNothingOfTheInput) {
  Child job(Command("ranks=1 starter:read 0:read"), "text\n");
  EXPECT_EQ(job.Line(), "said -1: nothing");
  EXPECT_EQ(job.Line(), "said 0: nothing");
  EXPECT_EQ(job.Wait(), 0);
}

// The launcher is killed while one rank sleeps, one computes endlessly and one is stopped.
TEST(SupervisorTest, NothingOutlivesTheLauncher) {
  FakeJob job("ranks=3 0:pid 0:starter_pid 1:pid 2:pid 0:wait 1:busy 2:signal=19");
  const std::vector<pid_t> pids = job.Pids(4);
  ASSERT_EQ(pids.size(), 4u);
  const double start = Now();
  job.Kill(SIGKILL);
  EXPECT_EQ(job.Wait(), -SIGKILL);
  for (pid_t pid : pids) EXPECT_TRUE(Ends(pid)) << pid;
  RecordProperty("seconds", std::to_string(Now() - start));
}

TEST(SupervisorTest, NothingOutlivesTheLauncherWhileTheScriptIsEvaluated) {
  FakeJob job("starter:pid starter:busy");
  const std::vector<pid_t> pids = job.Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  job.Kill(SIGKILL);
  EXPECT_TRUE(Ends(pids[0]));
}

TEST(SupervisorTest, TheStartersDeathEndsEverything) {
  FakeJob job("ranks=2 0:pid 0:starter_pid 1:pid 0:wait 1:signal=19");
  const std::vector<pid_t> pids = job.Pids(3);
  ASSERT_EQ(pids.size(), 3u);
  const bool first_is_starter = ::getpgid(pids[0]) == pids[0];
  ::kill(first_is_starter ? pids[0] : ::getpgid(pids[0]), SIGKILL);
  EXPECT_THAT(job.Lines(), Contains(StartsWith("cause: the process that started the ranks was")));
  EXPECT_EQ(job.Wait(), 137);
  for (pid_t pid : pids) EXPECT_TRUE(Ends(pid)) << pid;
}

TEST(SupervisorTest, TheRanksHaveAProcessGroupOfTheirOwn) {
  FakeJob job("ranks=2 0:pid 1:pid 0:wait 1:wait");
  const std::vector<pid_t> pids = job.Pids(2);
  ASSERT_EQ(pids.size(), 2u);
  EXPECT_EQ(::getpgid(pids[0]), ::getpgid(pids[1]));
  EXPECT_NE(::getpgid(pids[0]), ::getpgid(job.pid()));
}

// As in `sleep 1000 & exec strata ...`: the shell's child becomes a child of ours.
TEST(SupervisorTest, AChildFromBeforeIsNotWaitedFor) {
  Child job({"/bin/sh", "-c",
             "sleep 1000 >/dev/null 2>&1 & echo pid $!; exec launcher/process/fake_job ranks=1"});
  const pid_t sleeper = std::stoi(job.Line().substr(4));
  EXPECT_EQ(job.Line(), "cause: ");
  EXPECT_EQ(job.Wait(), 0);
  ::kill(sleeper, SIGKILL);
}

class UnreadTest : public testing::TestWithParam<const char*> {};

// Nobody reads what the launcher shows, and the pipe is full.
TEST_P(UnreadTest, ASignalEndsEverything) {
  const std::string marker = Str("marker", ::getpid());
  FakeJob job(Str(GetParam(), " 0:touch=", marker, " 0:busy"), Child::Output::kFull);
  while (::access(marker.c_str(), F_OK) != 0) ::sched_yield();
  ::unlink(marker.c_str());
  job.Kill(SIGTERM);
  EXPECT_TRUE(Ends(job.pid()));
  EXPECT_EQ(job.Wait(), 143);
}

INSTANTIATE_TEST_SUITE_P(All, UnreadTest,
                         testing::Values("ranks=1 0:say=x", "ranks=1 0:print=x", "ranks=1",
                                         "ranks=1 0:long=3000000"),
                         [](const auto& info) { return Str("Case", info.index); });

// A slow reader gets everything, and the ranks wait for it.
TEST(SupervisorTest, NothingIsLostWhenTheReaderComesLate) {
  constexpr int kCount = 150'000;
  FakeJob job(Str("ranks=1 0:count=", kCount), Child::Output::kFull);
  int next = 0;
  for (const std::string& line : job.Lines()) {
    if (!line.starts_with("stdout 0: ")) continue;
    EXPECT_EQ(line, Str("stdout 0: ", next++));
  }
  EXPECT_EQ(next, kCount);
  EXPECT_EQ(job.Wait(), 0);
}

/// A worker that reports 200 ranks, and then runs shell commands.
std::string FakeWorker(const std::string& then) {
  const std::string role(600, 'r');
  return Str("echo '{\"type\":\"hello\",\"time\":0.0,\"store_port\":0}'; r=0; ",
             "while [ $r -lt 200 ]; do echo '{\"type\":\"started\",\"rank\":'$r',\"ranks\":200,",
             "\"role\":\"", role, "\"}'; r=$((r+1)); done; ", then);
}

// Each rank is told the cause, which is more than the pipe to the worker takes.
TEST(RemoteTest, AWorkerThatDoesNotReadHangsNobody) {
  FakeJob job(Words{"grace=0.2",
                    "host=" + FakeWorker("echo '{\"type\":\"exited\",\"rank\":7,\"status\":2304}'; "
                                         "exec sleep 1000")});
  EXPECT_THAT(job.Lines(), Contains(StartsWith("cause: rank 7 (rrr")));
  EXPECT_EQ(job.Wait(), 9);
}

/// A worker of one rank that sends these messages, and then waits for its own child.
std::string WorkerThatSays(const std::string& hello, const std::string& message) {
  return Str("sleep 1000 & echo pid $! >&2; ", hello.empty() ? "" : "echo '" + hello + "'; ",
             message.empty() ? "" : "echo '" + message + "'; ", "wait");
}

const char* const kHello = "{\"type\":\"hello\",\"time\":0.0,\"store_port\":0}";

struct Said {
  const char* hello;
  const char* message;
  const char* cause;
};

const Said kNonsense[] = {
    {"", "Welcome to this machine", "the worker on host: expected a message, got"},
    {kHello, "{\"type\":\"greeting\"}",
     "the worker on host sent a message of the unknown type \"greeting\""},
    {kHello, "{\"type\":\"exited\",\"rank\":7,\"status\":0}",
     "a message is about rank 7, which its sender does not run"},
    {kHello, "{\"type\":\"output\",\"rank\":-3,\"is_error\":false,\"text\":\"a\"}",
     "a message is about rank -3, which its sender does not run"},
    {kHello, "{\"type\":\"said\",\"from\":1,\"body\":{\"type\":\"done\",\"text\":\"a\"}}",
     "rank 1 sent a message that makes no sense: a message is about rank 1"},
    {kHello, "{\"type\":\"started\",\"rank\":2,\"ranks\":2,\"role\":\"\"}",
     "a message says that rank 2 of 2 has started"},
    {kHello, "{\"type\":\"started\",\"rank\":0,\"ranks\":2000000000,\"role\":\"\"}",
     "a message says that rank 0 of 2000000000 has started"},
    {kHello, "{\"type\":\"started\",\"rank\":-1,\"ranks\":2,\"role\":\"\"}",
     "a message says that rank -1 of 2 has started"},
};

// The command may be another version, or not a worker at all. No process that it started may
// remain.
TEST(RemoteTest, NonsenseOfAWorkerEndsTheJobAndTheCommand) {
  std::vector<std::unique_ptr<FakeJob>> jobs;  // side by side, since each waits for its grace
  for (const Said& said : kNonsense) {
    jobs.push_back(std::make_unique<FakeJob>(
        Words{"grace=0.1", "host=" + WorkerThatSays(said.hello, said.message)}));
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::vector<pid_t> pids = jobs[i]->Pids(1);
    ASSERT_EQ(pids.size(), 1u) << kNonsense[i].message;
    EXPECT_THAT(jobs[i]->Lines(), Contains(HasSubstr(kNonsense[i].cause)));
    EXPECT_EQ(jobs[i]->Wait(), 1) << kNonsense[i].message;
    EXPECT_TRUE(Ends(pids[0])) << kNonsense[i].message;
  }
}

// The worker's input has ended, and nobody reads its output.
TEST(RemoteTest, AWorkerWhoseLauncherIsGoneEnds) {
  Child worker(Command("worker ranks=2 0:long=3000000 0:busy 1:busy"), "{\"type\":\"job\"}\n",
               Child::Output::kFull);
  EXPECT_TRUE(Ends(worker.pid()));
  EXPECT_EQ(worker.Wait(), 1);
}

TEST(RemoteTest, ACommandThatStartsNothingIsNoSuccess) {
  FakeJob job(Words{"job=10", "host=exit 0"});
  EXPECT_THAT(job.Lines(), Contains("cause: the connection to host is lost: /bin/sh ended with "
                                    "code 0"));
  EXPECT_EQ(job.Wait(), 1);
}

// A command that was not started must not be killed either: process 0 would be the launcher's own
// group.
TEST(RemoteTest, WithoutDescriptorsTheLauncherSaysSo) {
  Child job({"/bin/sh", "-c", "ulimit -n 8; exec setsid launcher/process/fake_job host=true"});
  EXPECT_THAT(job.Lines(), Contains(HasSubstr("Too many open files")));
  EXPECT_EQ(job.Wait(), 1);
}

// The child holds the pipes to the worker, but never reads or closes them.
TEST(RemoteTest, AChildThatTheWorkersCommandLeavesBehindHangsNobody) {
  FakeJob job(Words{"job=100000", "host=exec 3<&0; sleep 1000 <&3 & echo pid $! >&2; exit 3"});
  const std::vector<pid_t> pids = job.Pids(1);
  EXPECT_THAT(job.Lines(), Contains(StartsWith("cause: the connection to host is lost: /bin/sh")));
  EXPECT_EQ(job.Wait(), 1);
  for (pid_t pid : pids) ::kill(pid, SIGKILL);
}

// No process remains, in any order of ends. An orphan would become a child of this process.
TEST(SupervisorTest, LeavesNoOrphanAndNoZombie) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  for (const char* words : {"ranks=2", "ranks=2 0:world=x 1:wait",
                            "grace=0.1 ranks=2 0:busy 1:exit=3", "starter:config=x"}) {
    FakeJob job(words);
    job.Lines();
    job.Wait();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << words;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace strata::launcher
