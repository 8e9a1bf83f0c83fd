#include "engine/runtime/watch/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/runtime/watch/gather_trace.h"
#include "engine/runtime/watch/progress.h"

namespace strata {
namespace {

using schedule::ParseAction;
using schedule::Trace;
using schedule::TracedAction;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Doing kForward = {0, "0F3"};
const Doing kBackward = {0, "0B3"};

/// Describes each action as "4 0F3".
std::vector<std::string> Names(const std::vector<TracedAction>& actions) {
  std::vector<std::string> names;
  for (const TracedAction& traced : actions) {
    names.push_back(Str(traced.step, " ", schedule::ToText(traced.action)));
  }
  return names;
}

class TracerTest : public ::testing::Test {
 protected:
  TracerTest() { progress_.set_tracer(&tracer_); }

  void Run(const Doing& doing) {
    progress_.Start(&doing);
    progress_.Complete();
  }

  int64_t memory_ = 0;
  Tracer tracer_{[this] { return memory_; }};
  Progress progress_{0};
};

TEST_F(TracerTest, WritesDownWhatIsCompletedWhileItRecords) {
  Run(kForward);
  EXPECT_THAT(tracer_.Actions(), IsEmpty());
  tracer_.Record(4, 2);
  progress_.Start(&kBackward);  // the rank's START, which never completes
  memory_ = 100;
  Run(kForward);
  memory_ = 60;
  Run(kBackward);
  tracer_.Pause();
  Run(kForward);
  tracer_.Record(5, 2);
  Run(kForward);
  const std::vector<TracedAction> actions = tracer_.Actions();
  EXPECT_THAT(Names(actions), ElementsAre("4 0F3", "4 0B3", "5 0F3"));
  EXPECT_EQ(actions[0].memory, 100);
  EXPECT_EQ(actions[1].memory, 60);
  for (size_t i = 0; i < actions.size(); ++i) {
    EXPECT_LE(actions[i].start, actions[i].end);
    EXPECT_EQ(actions[i].waited, 0);
    if (i > 0) {
      EXPECT_LE(actions[i - 1].end, actions[i].start);
    }
  }
}

TEST_F(TracerTest, AddsUpWhatAnActionWaits) {
  tracer_.Record(0, 1);
  progress_.Start(&kForward);
  progress_.WaitFor(1);
  progress_.WaitForAll();  // continues the same wait
  const int64_t before = FlightRing::Now();
  while (FlightRing::Now() == before) {
  }
  progress_.Compute();
  progress_.Compute();
  progress_.Complete();
  Run(kBackward);
  const std::vector<TracedAction> actions = tracer_.Actions();
  EXPECT_GT(actions[0].waited, 0);
  EXPECT_LE(actions[0].waited, actions[0].end - actions[0].start + 1e-9);
  EXPECT_EQ(actions[1].waited, 0);
}

TEST_F(TracerTest, KeepsTheLastWholeSteps) {
  const size_t each = Tracer::kActions / 4 + 1;
  for (int64_t step = 0; step < 5; ++step) {
    tracer_.Record(step, each);
    for (size_t i = 0; i < each; ++i) Run(kForward);
  }
  std::vector<TracedAction> actions = tracer_.Actions();
  EXPECT_EQ(actions.size(), 3 * each);
  EXPECT_EQ(actions.front().step, 2);

  const size_t many = Tracer::kActions + 1;  // more in one step than are usually kept
  for (int64_t step = 5; step < 8; ++step) {
    tracer_.Record(step, many);
    for (size_t i = 0; i < many; ++i) Run(kForward);
  }
  actions = tracer_.Actions();
  EXPECT_GE(actions.size(), many);
  EXPECT_EQ(actions.size() % many, 0u);
  EXPECT_EQ(actions.back().step, 7);
}

TEST(TraceText, IsReadAsItWasWritten) {
  const std::vector<TracedAction> actions = {
      {7, ParseAction("(0F3;7B1)OVERLAP_F_B"), 0.1, 1.0 / 3, 12345.678901234567, int64_t{1} << 50},
      {8, ParseAction("2STEP"), -1e-9, 0, 0, 0}};
  EXPECT_EQ(ParseActions(ToText(actions)), actions);
  EXPECT_THAT(ParseActions(ToText({})), IsEmpty());
}

TEST(TraceText, DamageIsAnError) {
  const std::string whole = ToText({{7, ParseAction("2F1"), 0.5, 0, 1, 2}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(ParseActions(whole.substr(0, size)), Error) << size;
  }
  for (const char* text : {R"([[7,"2Q1",0,0,0,0]])", R"([[7,"2F1","x",0,0,0]])",
                           R"([[7,"2F1",0,0,0,1.5]])", "[7]", "7"}) {
    EXPECT_THROW(ParseActions(text), Error) << text;
  }
}

/// Runs `body(transport)` on one thread per rank.
template <class Body>
void OnRanks(int ranks, const Body& body) {
  std::vector<std::thread> threads;
  auto transports = MakeThreadTransports(ranks, {});
  for (auto& transport : transports) {
    threads.emplace_back([&body, &transport] { body(*transport); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(AlignClocks, FindsHowFarClocksAreApart) {
  const double kSkews[] = {0, 100.5, -3};
  std::vector<ClockOffset> offsets;
  OnRanks(3, [&](Transport& transport) {
    const int rank = transport.rank();
    const auto skew = static_cast<int64_t>(kSkews[rank] * 1e9);
    const TraceClock clock = {Str("machine ", rank), [skew] { return FlightRing::Now() + skew; }};
    const auto found = AlignClocks(transport, clock);
    if (rank == 0) offsets = found;
  });
  ASSERT_EQ(offsets.size(), 3u);
  EXPECT_EQ(offsets[0].error, 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NEAR(offsets[rank].add, -kSkews[rank], offsets[rank].error + 1e-9) << rank;
    EXPECT_LT(offsets[rank].error, 10) << "it did not measure";
  }
  EXPECT_GT(offsets[2].error, 0);
}

TEST(AlignClocks, OneClockNeedsNothing) {
  OnRanks(2, [](Transport& transport) {
    for (const ClockOffset& offset : AlignClocks(transport, MachineClock())) {
      EXPECT_EQ(offset.add, 0);
      EXPECT_EQ(offset.error, 0);
    }
  });
}

TEST(GatherTrace, HasTheStepsThatAllRanksHave) {
  Trace whole;
  OnRanks(2, [&](Transport& transport) {
    const int rank = transport.rank();
    Tracer tracer([] { return 1; });
    Progress progress(rank);
    progress.set_tracer(&tracer);
    // Rank 1's ring is full after two steps, rank 0's has all three.
    const size_t each = rank == 0 ? 1 : Tracer::kActions / 2;
    for (int64_t step = 0; step < 3; ++step) {
      tracer.Record(step, each);
      for (size_t i = 0; i < each; ++i) {
        progress.Start(&kForward);
        progress.Complete();
      }
    }
    const Trace trace = GatherTrace(tracer, transport, "a job");
    if (rank == 0) {
      whole = trace;
    } else {
      EXPECT_TRUE(trace.empty());
    }
  });
  EXPECT_EQ(whole.name, "a job");
  ASSERT_EQ(whole.ranks.size(), 2u);
  EXPECT_EQ(whole.first_step(), 1);
  EXPECT_EQ(whole.last_step(), 2);
  EXPECT_EQ(whole.ranks[0].actions.size(), 2u);
  EXPECT_EQ(whole.ranks[1].actions.size(), Tracer::kActions);
  EXPECT_EQ(std::min(whole.ranks[0].actions[0].start, whole.ranks[1].actions[0].start), 0);
}

TEST(GatherTrace, NothingRanNothingIsThere) {
  OnRanks(2, [](Transport& transport) {
    EXPECT_TRUE(GatherTrace(Tracer([] { return 0; }), transport, "").empty());
  });
}

}  // namespace
}  // namespace strata
