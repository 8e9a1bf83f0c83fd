#include "engine/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "engine/base/text.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// The text that `log` writes to stderr.
template <class Log>
std::string Written(Log log) {
  testing::internal::CaptureStderr();
  log();
  return testing::internal::GetCapturedStderr();
}

// This test must run first, since glog cannot be stopped again.
TEST(Log, WithoutInitWarningsAreLinesForPeople) {
  EXPECT_EQ(Written([] { STRATA_LOG(kWarning) << "slow " << 1; }), "warning: slow 1\n");
  EXPECT_EQ(Written([] { STRATA_LOG(kError) << "lost"; }), "error: lost\n");
  EXPECT_THAT(Written([] { STRATA_LOG(kInfo) << "quiet"; }), IsEmpty());
}

TEST(Log, ShowsThePlaceAndTheLabel) {
  InitLogging(LogLevel::kInfo, "rank 3");
  EXPECT_THAT(Written([] { STRATA_LOG(kInfo) << "step " << 7; }),
              AllOf(HasSubstr("log_test.cc:"), HasSubstr("] rank 3: step 7\n")));
  EXPECT_THAT(Written([] { STRATA_LOG(kWarning) << "slow"; }), HasSubstr("rank 3: slow"));
}

TEST(Log, WithoutALabelThereIsNoColon) {
  InitLogging(LogLevel::kInfo, "");
  EXPECT_THAT(Written([] { STRATA_LOG(kInfo) << "step"; }), HasSubstr("] step\n"));
}

TEST(Log, DropsWhatIsBelowTheMinimum) {
  InitLogging(LogLevel::kWarning, "");
  EXPECT_THAT(Written([] { STRATA_LOG(kInfo) << "quiet"; }), IsEmpty());
  EXPECT_THAT(Written([] { STRATA_LOG(kWarning) << "loud"; }), HasSubstr("loud"));
  InitLogging(LogLevel::kError, "");
  EXPECT_THAT(Written([] { STRATA_LOG(kWarning) << "quiet"; }), IsEmpty());
  EXPECT_THAT(Written([] { STRATA_LOG(kError) << "loud"; }), HasSubstr("loud"));
}

TEST(Log, TheLastCallHolds) {
  InitLogging(LogLevel::kError, "rank 1");
  InitLogging(LogLevel::kInfo, "rank 2");
  EXPECT_THAT(Written([] { STRATA_LOG(kInfo) << "here"; }),
              AllOf(HasSubstr("rank 2: here"), Not(HasSubstr("rank 1"))));
}

TEST(Log, KeepsLongMessages) {
  InitLogging(LogLevel::kInfo, "");
  const std::string message(20'000, 'x');
  EXPECT_THAT(Written([&] { STRATA_LOG(kError) << message; }), HasSubstr(message));
}

TEST(Log, LinesOfSeveralThreadsStayWhole) {
  InitLogging(LogLevel::kInfo, "");
  const std::string written = Written([] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 50; ++i) STRATA_LOG(kInfo) << "thread " << t << " line " << i << " end";
      });
    }
  });
  const std::vector<std::string> lines = Split(Trim(written), '\n');
  EXPECT_EQ(lines.size(), 4u * 50u);
  EXPECT_TRUE(std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("] thread ") != std::string::npos && line.ends_with(" end");
  }));
}

}  // namespace
}  // namespace strata
