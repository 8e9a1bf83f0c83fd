#include "engine/base/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Collects the lines; its clock goes on only by Wait().
class ProgressLineTest : public ::testing::Test {
 protected:
  ProgressLineTest() {
    SetProgressOutput({.say = [this](const std::string& line) { lines_.push_back(line); },
                       .now = [this] { return now_; }});
  }
  ~ProgressLineTest() override { SetProgressOutput({}); }

  /// Advances `line` by one in each of `pieces` periods of `seconds`.
  void Work(ProgressLine& line, int pieces, double seconds) {
    for (int i = 0; i < pieces; ++i) {
      now_ += seconds;
      line.Advance();
    }
  }

  std::vector<std::string> lines_;
  double now_ = 100;
};

TEST_F(ProgressLineTest, SaysNothingOfShortWork) {
  ProgressLine line("reading weights", 19);
  Work(line, 19, 0.1);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ProgressLineTest, SaysALineEveryTwoSeconds) {
  ProgressLine line("reading weights", 60);
  Work(line, 60, 0.125);  // exact in binary
  EXPECT_THAT(lines_, ElementsAre("reading weights, 26 %", "reading weights, 53 %",
                                  "reading weights, 80 %"));
}

TEST_F(ProgressLineTest, CountsWhereAsked) {
  ProgressLine of("evaluating", 400, ProgressForm::kCount);
  Work(of, 1, 2);
  ProgressLine endless("reading lines", 0, ProgressForm::kCount), waiting("waiting", 0);
  Work(endless, 1, 2);
  Work(waiting, 1, 2);
  EXPECT_THAT(lines_, ElementsAre("evaluating, 1 of 400", "reading lines, 1", "waiting"));
}

TEST_F(ProgressLineTest, CountsAPieceLongerThanAPauseAsOneSilence) {
  ProgressLine line("reading weights", 2);
  Work(line, 2, 1.5);
  EXPECT_THAT(lines_, ElementsAre("reading weights, 100 %"));
}

TEST_F(ProgressLineTest, CountsShortWorksInARowAsOneSilence) {
  for (int i = 0; i < 4; ++i) {
    ProgressLine line("building", 10);
    Work(line, 1, 0.6);
  }
  EXPECT_THAT(lines_, ElementsAre("building, 10 %"));
}

TEST_F(ProgressLineTest, BeginsANewSilenceAfterAPause) {
  for (int i = 0; i < 4; ++i) {
    {
      ProgressLine line("evaluating", 10);
      Work(line, 1, 0.6);
    }
    now_ += 60;  // work without lines
  }
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ProgressLineTest, SaysALineAtOnceThatEndsTheSilence) {
  ProgressLine line("reading weights", 10);
  Work(line, 1, 1.5);
  SayProgress("a note");
  Work(line, 1, 1.5);
  EXPECT_THAT(lines_, ElementsAre("a note"));
}

TEST_F(ProgressLineTest, SaysNothingOnMutedThreads) {
  const MutedProgress muted;
  EXPECT_FALSE(IsProgressHeard());
  SayProgress("a note");
  ProgressLine line("reading weights", 10);
  Work(line, 10, 10);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ProgressLineTest, SaysNothingWithoutOutput) {
  SetProgressOutput({});
  ProgressLine line("reading weights", 10);
  Work(line, 10, 10);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace strata
