#include "engine/runtime/watch/fault.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "engine/base/testing.h"
#include "engine/runtime/watch/progress.h"

namespace strata {
namespace {

TEST(FaultTest, SaysWhoAndWhereAndHow) {
  const Fault fault = ParseFault("12:0REDUCE_GRAD:STOP");
  EXPECT_EQ(fault.rank, 12);
  EXPECT_EQ(fault.action, "0REDUCE_GRAD");
  EXPECT_EQ(fault.signal, SIGSTOP);
  EXPECT_EQ(ParseFault("0:START").signal, SIGKILL);
}

TEST(FaultTest, RefusesWhatMakesNoSense) {
  for (const char* text : {"", "1", "1:", ":0F0", "x:0F0", "1x:0F0", "-1:0F0", "99999999999:0F0",
                           "1:0F0:", "1:0F0:KIL", "1:0F0:9", "1:0F0:KILL:1"}) {
    EXPECT_THROW(ParseFault(text), ConfigError) << text;
  }
}

TEST(FaultTest, IsOneRanks) {
  ::unsetenv("STRATA_FAULT");
  EXPECT_FALSE(FaultOf(1));
  ::setenv("STRATA_FAULT", "1:0F0", 1);
  EXPECT_FALSE(FaultOf(0));
  EXPECT_EQ(FaultOf(1)->action, "0F0");
  ::setenv("STRATA_FAULT", "none", 1);
  EXPECT_THROW(FaultOf(0), ConfigError);
  ::unsetenv("STRATA_FAULT");
}

TEST(FaultTest, StrikesWhereTheRankBeginsWithTheAction) {
  const Doing before = {0, "0F0"}, there = {0, "0F1"};
  Progress progress(1, ParseFault("1:0F1"));
  progress.Start(&before);
  progress.Complete();
  EXPECT_EXIT(progress.Start(&there), testing::KilledBySignal(SIGKILL), "");
}

// Ranks ignore SIGTERM and leave it to the launcher.
TEST(FaultTest, StrikesWithASignalThatIsIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGTERM, SIG_IGN);
        ParseFault("1:0F1:TERM").Reach("0F1");
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace strata
