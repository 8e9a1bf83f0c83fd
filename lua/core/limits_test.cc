// Limits of memory and time, and interrupts.
#include "lua/core/limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

#include "engine/base/error.h"

namespace strata::lua {
namespace {

TEST(Limits, CountsAndRefusesMemory) {
  Limits limits(1000);
  void* a = limits.Reallocate(nullptr, 0, 400);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(limits.memory_used(), 400u);
  a = limits.Reallocate(a, 400, 900);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(limits.Reallocate(nullptr, 0, 101), nullptr);
  EXPECT_EQ(limits.Reallocate(a, 900, 1001), nullptr) << "the block stays";
  EXPECT_EQ(limits.memory_used(), 900u);
  limits.Lend(1);
  limits.Reallocate(limits.Reallocate(nullptr, 0, 101), 101, 0);
  limits.Lend(0);
  void* b = limits.Reallocate(nullptr, 0, 100);
  ASSERT_NE(b, nullptr);
  a = limits.Reallocate(a, 900, 10);
  EXPECT_EQ(limits.memory_used(), 110u);
  EXPECT_EQ(limits.Reallocate(a, 10, 0), nullptr);
  EXPECT_EQ(limits.Reallocate(b, 100, 0), nullptr);
  EXPECT_EQ(limits.memory_used(), 0u);
}

TEST(Limits, CountsWhatIsNotLuas) {
  Limits limits(1000);
  EXPECT_FALSE(limits.Take(1001));
  EXPECT_FALSE(limits.Take(static_cast<size_t>(-1)));
  EXPECT_TRUE(limits.Take(600));
  EXPECT_FALSE(limits.Take(401));
  EXPECT_EQ(limits.Reallocate(nullptr, 0, 401), nullptr);
  EXPECT_EQ(limits.memory_used(), 600u);
  limits.GiveBack(600);
  EXPECT_TRUE(limits.Take(1000));
}

TEST(Limits, IgnoresTheOldSizeOfANewBlock) {
  Limits limits(1000);  // For a new block Lua passes the kind of object as old_size.
  void* block = limits.Reallocate(nullptr, 8, 100);
  EXPECT_EQ(limits.memory_used(), 100u);
  limits.Reallocate(block, 100, 0);
}

TEST(Limits, TimeEnds) {
  Limits limits(0);
  limits.Begin(1e-9);
  const std::clock_t start = std::clock();  // processor time, which the limit counts
  while (std::clock() == start) {
  }
  EXPECT_NE(limits.Reason().find("takes longer"), std::string::npos);
  EXPECT_NE(limits.Reason().find("--script_timeout"), std::string::npos);
  EXPECT_THROW(limits.Poll(), ConfigError);
  limits.EndTimeLimit();
  EXPECT_EQ(limits.Reason(), "");
  limits.Begin(0);
  EXPECT_EQ(limits.Reason(), "");
  EXPECT_NO_THROW(limits.Poll());
}

TEST(Limits, MoreSecondsThanTheKernelCountsAreALimitToo) {
  Limits limits(0);
  limits.Begin(1e30);
  EXPECT_EQ(limits.Reason(), "");
}

void Burn(double seconds) {
  const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
  while (std::clock() < end) {
  }
}

TEST(Limits, TimeOffTheClockDoesNotCount) {
  Limits limits(0);
  limits.Begin(0.05);
  {
    const ClockSwitch off(limits, false);
    Burn(1.2);  // longer than the time and its grace, so a running timer would end this process
    EXPECT_EQ(limits.Reason(), "");
    const ClockSwitch on(limits, true);
    EXPECT_EQ(limits.Reason(), "");
    Burn(0.1);
    EXPECT_TRUE(limits.overdue());
    EXPECT_NE(limits.Reason(), "");
  }
  EXPECT_NE(limits.Reason(), "") << "the time that was taken stays taken";
  const ClockSwitch off(limits, false);
  const ClockSwitch on(limits, true);
  Burn(0.1);
  EXPECT_NE(limits.Reason(), "") << "the process ends only after its grace";
}

TEST(Limits, TimeWithoutAProcessorDoesNotCount) {
  Limits limits(0);
  limits.Begin(0.05);
  // Sleeping imitates a busy machine: wall-clock time passes, but no processor time.
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(limits.Reason(), "");
  while (limits.Reason().empty()) {
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(240));
}

TEST(Limits, AnInterruptHoldsUntilTheNextCall) {
  Limits limits(0);
  EXPECT_TRUE(limits.Interrupt());
  EXPECT_TRUE(limits.Interrupt()) << "nothing runs that could have been told";
  limits.Begin(0);
  EXPECT_TRUE(limits.Interrupt());
  EXPECT_TRUE(limits.interrupted());
  EXPECT_EQ(limits.Reason(), "interrupted");
  EXPECT_EQ(limits.Reason(), "interrupted");
  EXPECT_FALSE(limits.Interrupt()) << "the call was told before";
  limits.Begin(0);
  EXPECT_FALSE(limits.interrupted());
}

Limits* signalled = nullptr;

TEST(Limits, AnInterruptFromASignalWakesAThread) {
  Limits limits(0);
  signalled = &limits;
  std::signal(SIGUSR1, [](int) { signalled->Interrupt(); });
  std::thread waiter([&] { limits.AwaitInterrupt(); });
  std::raise(SIGUSR1);
  waiter.join();
  EXPECT_TRUE(limits.interrupted());
  std::signal(SIGUSR1, SIG_DFL);
  limits.Wake();
  limits.AwaitInterrupt();
}

}  // namespace
}  // namespace strata::lua
