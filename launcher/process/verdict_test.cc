// Tests of the cause that is found, for every order of events.
#include "launcher/process/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <signal.h>

#include <algorithm>
#include <numeric>

namespace strata::launcher {
namespace {

constexpr int kExited = 0;
int ExitedWith(int code) { return code << 8; }  // wait(2)'s encoding

RankEnd Done() {
  RankEnd end;
  end.done = true;
  end.status = kExited;
  return end;
}

RankEnd Running() { return {}; }

RankEnd Threw(double time, const std::string& text, const std::string& kind = "world") {
  RankEnd end;
  end.error = {.kind = kind, .text = text, .time = time};
  end.status = ExitedWith(kind == "config" ? 2 : 1);
  return end;
}

RankEnd LostPeer(double time, const std::string& text = "lost a peer") {
  return Threw(time, text, "peer");
}

RankEnd AfterNews(RankEnd end) {
  end.answered_abort = true;
  return end;
}

RankEnd Vanished(int exit_order, int status) {
  RankEnd end;
  end.exit_order = exit_order;
  end.status = status;
  return end;
}

TEST(FirstCauseTest, NobodyFailed) {
  EXPECT_EQ(FirstCause({}), -1);
  EXPECT_EQ(FirstCause({Done(), Running()}), -1);
}

TEST(FirstCauseTest, TheEarliestErrorWhateverOrderItIsHeardIn) {
  EXPECT_EQ(FirstCause({Threw(2.0, "lost rank 1"), Threw(1.0, "disk full"), Done()}), 1);
  EXPECT_EQ(FirstCause({Threw(1.0, "disk full"), Threw(2.0, "lost rank 0")}), 0);
}

TEST(FirstCauseTest, AVanishedRankExplainsItsPeersErrors) {
  EXPECT_EQ(FirstCause({Threw(1.0, "lost rank 1"), Vanished(0, SIGKILL)}), 1);
  EXPECT_EQ(FirstCause({Vanished(0, ExitedWith(7)), Threw(1.0, "lost rank 0")}), 0);
}

TEST(FirstCauseTest, ALostPeerIsAConsequenceThoughItIsThrownAndHeardFirst) {
  EXPECT_EQ(FirstCause({LostPeer(1.0), Threw(2.0, "disk full")}), 1);
  EXPECT_EQ(FirstCause({Threw(2.0, "wrong", "config"), LostPeer(1.0), LostPeer(0.5)}), 0);
  EXPECT_EQ(FirstCause({LostPeer(1.0), Vanished(0, SIGKILL), LostPeer(0.5)}), 1);
}

TEST(FirstCauseTest, TheCauseMayHaveHeardOfItsConsequenceBeforeItSpoke) {
  EXPECT_EQ(FirstCause({LostPeer(1.0), AfterNews(Threw(2.0, "disk full"))}), 1);
  EXPECT_EQ(FirstCause({AfterNews(Threw(2.0, "disk full")), LostPeer(1.0)}), 0);
  RankEnd echo = AfterNews(Threw(1.5, "rank 0: lost a peer"));
  echo.error->repeats_news = true;
  EXPECT_EQ(FirstCause({LostPeer(1.0), echo, AfterNews(Threw(2.0, "disk full"))}), 2);
  EXPECT_EQ(FirstCause({LostPeer(1.0), echo}), 0);
}

TEST(FirstCauseTest, WhereNobodyElseFailedTheFirstLostConnectionIsTheCause) {
  EXPECT_EQ(FirstCause({LostPeer(2.0), LostPeer(1.0), Running()}), 1);
  EXPECT_EQ(FirstCause({LostPeer(2.0), AfterNews(LostPeer(1.0))}), 0);
  EXPECT_EQ(ExitCode(LostPeer(1.0)), 1);
}

TEST(FirstCauseTest, OfSeveralVanishedTheFirst) {
  EXPECT_EQ(FirstCause({Vanished(1, SIGABRT), Vanished(0, SIGKILL)}), 1);
}

TEST(FirstCauseTest, WhatHappensAfterTheNewsIsAConsequence) {
  RankEnd crashed_later = Vanished(0, SIGABRT);
  crashed_later.answered_abort = true;
  EXPECT_EQ(FirstCause({crashed_later, Threw(5.0, "disk full")}), 1);
  RankEnd woken = Threw(0.5, "rank 1: disk full");
  woken.answered_abort = true;
  EXPECT_EQ(FirstCause({woken, Threw(5.0, "disk full")}), 1);
}

TEST(FirstCauseTest, OurOwnKillIsNoCause) {
  RankEnd stuck = Vanished(0, SIGKILL);
  stuck.killed_by_us = true;
  EXPECT_EQ(FirstCause({stuck, Threw(1.0, "disk full")}), 1);
}

TEST(FirstCauseTest, LeavingWithoutHavingFinishedIsAFailure) {
  EXPECT_EQ(FirstCause({Done(), Vanished(0, kExited)}), 1);
}

/// A random end of a rank. `order` is its exit_order; it distinguishes the ranks of a job.
rc::Gen<RankEnd> AnyEnd(int order) {
  return rc::gen::map(
      rc::gen::tuple(rc::gen::inRange(0, 5), rc::gen::arbitrary<bool>(), rc::gen::inRange(0, 100)),
      [order](const std::tuple<int, bool, int>& choice) {
        const auto [kind, answered, time] = choice;
        RankEnd end = kind == 0   ? Done()
                      : kind == 1 ? Running()
                      : kind == 2 ? Threw(time + order / 1000.0, "oh")
                      : kind == 3 ? LostPeer(time + order / 1000.0)
                                  : Vanished(100 * time + order, SIGSEGV);
        end.answered_abort = answered && kind != 0;
        return end;
      });
}

std::vector<RankEnd> AnyEnds() {
  std::vector<RankEnd> ranks;
  const int size = *rc::gen::inRange(1, 9);
  for (int i = 0; i < size; ++i) ranks.push_back(*AnyEnd(i));
  return ranks;
}

TEST(FirstCauseTest, DoesNotDependOnTheRanksNumbers) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<RankEnd> ranks = AnyEnds();
    std::vector<int> order(ranks.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + *rc::gen::inRange<long>(0, std::ssize(order)),
                order.end());
    std::vector<RankEnd> rotated;
    for (int i : order) rotated.push_back(ranks[static_cast<size_t>(i)]);
    const int cause = FirstCause(rotated);
    RC_ASSERT(FirstCause(ranks) == (cause < 0 ? -1 : order[static_cast<size_t>(cause)]));
  }));
}

TEST(FirstCauseTest, IsAFailureThatNobodyElseExplains) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<RankEnd> ranks = AnyEnds();
    const int cause = FirstCause(ranks);
    const auto own_error = [](const RankEnd& rank) {
      return rank.error && rank.error->kind != "peer";
    };
    const auto possible = [&](const RankEnd& rank) {
      return rank.failed() && (!rank.answered_abort || own_error(rank));
    };
    RC_ASSERT((cause >= 0) == std::any_of(ranks.begin(), ranks.end(), possible));
    if (cause < 0) return;
    const RankEnd& first = ranks[static_cast<size_t>(cause)];
    RC_ASSERT(possible(first));
    RC_ASSERT(ExitCode(first) != 0);
    for (const RankEnd& rank : ranks) {
      const bool vanished = !rank.error && rank.failed() && !rank.answered_abort;
      RC_ASSERT(!vanished || !first.error);  // a vanished rank comes before all errors
      // A rank's own error comes before errors about lost peers.
      RC_ASSERT(!own_error(rank) || !first.error || own_error(first));
    }
  }));
}

TEST(ExitCodeTest, IsTheRanksOwn) {
  EXPECT_EQ(ExitCode(Done()), 0);
  EXPECT_EQ(ExitCode(Running()), 0);
  EXPECT_EQ(ExitCode(Vanished(0, ExitedWith(7))), 7);
  EXPECT_EQ(ExitCode(Vanished(0, SIGKILL)), 137);
  EXPECT_EQ(ExitCode(Vanished(0, SIGSEGV)), 139);
  EXPECT_EQ(ExitCode(Vanished(0, kExited)), 1);
  EXPECT_EQ(ExitCode(Threw(1.0, "disk full")), 1);
  EXPECT_EQ(ExitCode(Threw(1.0, "no such layer", "config")), 2);
}

TEST(ExitCodeTest, BeforeTheRankHasEnded) {
  RankEnd config = Threw(1.0, "no such layer", "config");
  config.status.reset();
  EXPECT_EQ(ExitCode(config), 2);
  RankEnd world = Threw(1.0, "disk full");
  world.status.reset();
  EXPECT_EQ(ExitCode(world), 1);
  RankEnd corrupted = Threw(1.0, "rank 1 gave wrong bits", kCorruptionError);
  corrupted.status.reset();
  EXPECT_EQ(ExitCode(corrupted), 163);
  EXPECT_FALSE(MayPass(corrupted)) << "nobody restarts with a machine that computes wrong numbers";
  EXPECT_EQ(Summary(corrupted, 0, 2), "rank 1 gave wrong bits") << "rank 0 is not the cause";
}

TEST(SummaryTest, NamesTheRankWhereThereAreSeveral) {
  EXPECT_EQ(Summary(Threw(1.0, "disk full"), 1, 2), "rank 1: disk full");
  EXPECT_EQ(Summary(Threw(1.0, "disk full"), 0, 1), "disk full");
  EXPECT_EQ(Summary(Threw(1.0, "step 3 was not taken", kTrainingError), 1, 2),
            "step 3 was not taken")
      << "all ranks found it";
  EXPECT_EQ(Summary(Threw(1.0, "rank 1 lost rank 0"), 1, 2), "rank 1 lost rank 0");
}

TEST(SummaryTest, SaysHowARankVanished) {
  EXPECT_EQ(Summary(Vanished(0, SIGSEGV), 1, 2), "rank 1 was ended by signal 11 (SIGSEGV)");
  EXPECT_EQ(Summary(Vanished(0, SIGKILL), 1, 2),
            "rank 1 was ended by signal 9 (SIGKILL); if nobody killed it, the machine ran out of "
            "memory");
  EXPECT_EQ(Summary(Vanished(0, SIGBUS), 1, 2),
            "rank 1 was ended by signal 7 (SIGBUS); a file that it had mapped became shorter, or a "
            "disk failed");
  EXPECT_EQ(Summary(Vanished(0, ExitedWith(3)), 0, 2),
            "rank 0 exited with code 3 without saying why");
  EXPECT_EQ(Summary(Vanished(0, kExited), 0, 2), "rank 0 ended before its work was done");
  RankEnd with_role = Vanished(0, SIGSEGV);
  with_role.role = "stage 1, replica 0";
  EXPECT_EQ(Summary(with_role, 2, 4),
            "rank 2 (stage 1, replica 0) was ended by signal 11 (SIGSEGV)");
}

TEST(ExplainTest, ShowsWhereTheOthersWere) {
  RankEnd waiting = Threw(2.0, "rank 1: disk full");
  waiting.error->repeats_news = true;
  waiting.answered_abort = true;
  waiting.position = "rank 0 (stage 0): 1B0, waiting for rank 1";
  RankEnd stuck = Vanished(0, SIGKILL);
  stuck.killed_by_us = true;
  EXPECT_EQ(Explain({waiting, Threw(1.0, "disk full"), stuck}, 1),
            "rank 1: disk full\n"
            "where the others were:\n"
            "  rank 0 (stage 0): 1B0, waiting for rank 1\n"
            "  rank 2: no answer; it is stopped or stuck");
  EXPECT_EQ(Explain({Threw(1.0, "disk full"), Done()}, 0), "rank 0: disk full");
}

TEST(ExplainTest, ShowsWhatTheOthersNoticedByThemselves) {
  RankEnd lost = Threw(2.0, "rank 0 lost the connection to rank 1\nand more");
  lost.answered_abort = true;
  lost.position = "rank 0: at rest";
  EXPECT_EQ(Explain({lost, Vanished(0, SIGSEGV), Threw(3.0, "timed out")}, 1),
            "rank 1 was ended by signal 11 (SIGSEGV)\n"
            "where the others were:\n"
            "  rank 0 lost the connection to rank 1\n"
            "  rank 2: timed out");
}

TEST(ExplainTest, ALostPeerIsToldByWhoWaitedForIt) {
  RankEnd lost = LostPeer(2.0, "rank 0 lost the connection to rank 1: reset");
  lost.position = "rank 0 (stage 0): 0B1, waiting for rank 1";
  EXPECT_EQ(Explain({lost, Vanished(0, SIGSEGV)}, 1),
            "rank 1 was ended by signal 11 (SIGSEGV)\n"
            "where the others were:\n"
            "  rank 0 (stage 0): 0B1, waiting for rank 1");
  EXPECT_EQ(Explain({lost, Done()}, 0), "rank 0 lost the connection to rank 1: reset");
}

TEST(ExplainTest, WhatAllFoundIsShownOnce) {
  const std::vector<RankEnd> ranks = {Threw(1.0, "another job", "config"),
                                      Threw(0.5, "another job", "config"), LostPeer(2.0, "lost")};
  EXPECT_EQ(Explain(ranks, 1), "rank 1: another job\nwhere the others were:\n  rank 2: lost");
}

TEST(SignalNameTest, KnowsNamesAndNumbers) {
  EXPECT_EQ(SignalName(SIGTERM), "signal 15 (SIGTERM)");
  EXPECT_EQ(SignalName(63), "signal 63");
}

}  // namespace
}  // namespace strata::launcher
