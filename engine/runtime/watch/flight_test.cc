#include "engine/runtime/watch/flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/full_disk.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/runtime/watch/stack.h"

namespace strata {
namespace {

using testing::HasSubstr;

std::vector<std::string> Names(const FlightRing& ring) {
  std::vector<std::string> names;
  for (const FlightEvent& event : ring.Events()) names.push_back(event.what);
  return names;
}

TEST(FlightTest, HasActionsAndCollectivesInTheirOrder) {
  FlightRing ring;
  ring.set_step(7);
  ring.Start("1F3", 1);
  ring.Wait(0);
  ring.Go();
  ring.End();
  ring.Add("all_reduce data", 4096, 10, 30);
  ring.Start("1B0", 1);
  ring.Wait(2);
  const std::vector<FlightEvent> events = ring.Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].what, "1F3");
  EXPECT_EQ(events[0].stage, 1);
  EXPECT_EQ(events[0].step, 7);
  EXPECT_EQ(events[0].peer, 0);
  EXPECT_GT(events[0].end, events[0].start);
  EXPECT_EQ(events[0].waited, ring.waited());
  EXPECT_EQ(events[1].what, "all_reduce data");
  EXPECT_EQ(events[1].bytes, 4096);
  EXPECT_EQ(events[2].peer, 2);
  EXPECT_EQ(events[2].end, 0) << "it goes on";
}

/// Then there are no flight records for the launcher, and a warning says so.
TEST(FlightTest, ALimitOfFilesSizesEndsNothing) {
  ::testing::internal::CaptureStderr();
  const std::string trouble = ErrorOf([] {
    const FullDisk full(4096);
    FlightMemory memory = FlightMemory::Make(2);
    ASSERT_EQ(memory.rings().size(), 2u);
    memory.rings()[1].Start("1F3", 1);
    EXPECT_THAT(Names(memory.rings()[1]), ::testing::ElementsAre("1F3"));
    EXPECT_TRUE(FlightMemory::Map(memory.fd()).rings().empty());
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(trouble, "no error");
  EXPECT_THAT(told, HasSubstr("no flight records: files may not be so large (ulimit -f)"));
}

TEST(FlightTest, KeepsTheLastThousand) {
  FlightRing ring;
  for (int i = 0; i < 5000; ++i) {
    const std::string name = std::to_string(i);
    ring.Start(name, 0);
    ring.End();
  }
  const std::vector<std::string> names = Names(ring);
  ASSERT_EQ(names.size(), FlightRing::kEvents);
  EXPECT_EQ(names.front(), "4000");
  EXPECT_EQ(names.back(), "4999");
}

TEST(FlightTest, ARowsFirstActionIsOne) {
  FlightRing ring;
  const std::string name = "0F0";
  ring.Start(name, 0);
  ring.Start(name, 0);
  ring.End();
  EXPECT_EQ(Names(ring).size(), 1u);
}

TEST(FlightTest, ALongNameIsCut) {
  FlightRing ring;
  ring.Start(std::string(40, 'x'), 0);
  EXPECT_EQ(Names(ring)[0], std::string(32, 'x'));
}

TEST(FlightTest, ManyThreadsWriteAndOneReadsWholeEventsOnly) {
  const auto ring = std::make_unique<FlightRing>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&ring, t] {
      for (int64_t i = 1; i < 20000; ++i) ring->Add(std::to_string(i), i, i, i + t);
    });
  }
  for (int i = 0; i < 50; ++i) {
    for (const FlightEvent& event : ring->Events()) {
      EXPECT_EQ(event.what, std::to_string(event.bytes));
      EXPECT_EQ(event.start, event.bytes);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

/// This is what the launcher does with a rank that was killed.
TEST(FlightTest, AnotherProcessReadsWhatADeadOneWrote) {
  const FlightMemory memory = FlightMemory::Make(2);
  const pid_t child = ::fork();
  if (child == 0) {
    memory.rings()[1].Start("0F1", 0);
    memory.rings()[1].set_stack("main");
    memory.rings()[1].set_hung();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const FlightMemory mapped = FlightMemory::Map(memory.fd());
  ASSERT_EQ(mapped.rings().size(), 2u);
  EXPECT_TRUE(Names(mapped.rings()[0]).empty());
  EXPECT_EQ(Names(mapped.rings()[1]), (std::vector<std::string>{"0F1"}));
  EXPECT_EQ(mapped.rings()[1].Stack(), "main");
  EXPECT_TRUE(mapped.rings()[1].hung());
}

TEST(FlightTest, ARecordIsShownInWords) {
  FlightRing ring;
  ring.set_step(3);
  ring.Start("1F3", 1);
  ring.End();
  ring.Add("all_reduce data", 4096, FlightRing::Now() - 1000, FlightRing::Now());
  ring.Start("1B0", 1);
  ring.Wait(2);
  ring.set_stack("  main +0x1 (strata)");
  Value rank = FlightOf(ring, 1);
  rank.Set("role", "stage 1").Set("position", "rank 1 (stage 1): 1B0, waiting for rank 2");
  const double now = 1e-9 * static_cast<double>(FlightRing::Now());
  const Value record = FlightRecord("rank 2 was killed", now, Value::List{rank});
  EXPECT_TRUE(IsFlightRecord(record.ToJson()));
  const std::string text = FlightText(Value::FromJson(record.ToJson()), 12);
  EXPECT_THAT(text, HasSubstr("rank 2 was killed\n\nrank 1 (stage 1): 3 events\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 (stage 1): 1B0, waiting for rank 2\n"));
  EXPECT_THAT(text, HasSubstr("4.00 KiB"));
  EXPECT_THAT(text, HasSubstr("goes on, waits for rank 2"));
  EXPECT_THAT(text, HasSubstr("stack:\n  main +0x1 (strata)\n"));
  EXPECT_THAT(FlightText(record, 1), testing::Not(HasSubstr("1F3")));
}

TEST(FlightTest, AnythingElseIsRefused) {
  EXPECT_FALSE(IsFlightRecord("{}"));
  EXPECT_THROW(FlightText(Value::MakeMap({{"format", "x"}}), 1), ConfigError);
  EXPECT_THROW(FlightText(Value(1), 1), ConfigError);
  const Value newer = FlightRecord("x", 0, Value::List()).Set("version", 2);
  EXPECT_THROW(FlightText(newer, 1), ConfigError);
}

TEST(StackTest, ShowsWhereAThreadIs) {
  PrepareStacks();
  std::promise<int> told;
  std::promise<void> end;
  std::thread thread([&] {
    told.set_value(static_cast<int>(::syscall(SYS_gettid)));
    end.get_future().wait();
  });
  const std::string stack = StackOf(told.get_future().get());
  EXPECT_THAT(stack, HasSubstr("libc.so"));
  EXPECT_GT(Split(stack, '\n').size(), 3u) << stack;
  end.set_value();
  thread.join();
  EXPECT_EQ(StackOf(1 << 30), "") << "no such thread";
}

TEST(StackTest, TheThreadItselfTellsOfItsScript) {
  static thread_local bool has_script = false;
  PrepareStacks();
  SetScriptStack(nullptr, [](char* text, size_t size) {
    return has_script ? static_cast<size_t>(std::snprintf(text, size, "  net.lua:7")) : size_t{0};
  });
  const auto told_by = [](bool has) {
    std::promise<int> told;
    std::promise<void> end;
    std::thread thread([&] {
      has_script = has;
      told.set_value(static_cast<int>(::syscall(SYS_gettid)));
      end.get_future().wait();
    });
    std::string script = "before";
    StackOf(told.get_future().get(), &script);
    end.set_value();
    thread.join();
    return script;
  };
  EXPECT_EQ(told_by(true), "  net.lua:7");
  EXPECT_EQ(told_by(false), "");
  SetScriptStack(nullptr, nullptr);
}

}  // namespace
}  // namespace strata
