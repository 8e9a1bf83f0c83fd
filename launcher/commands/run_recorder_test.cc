// Tests of a recorded training that arrives as messages.
#include "launcher/commands/run_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/report/train_report.h"
#include "launcher/terminal/pty.h"
#include "launcher/testing.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

const PlannedRun kPlan = {.name = "pipe 3, 1f1b, gloo",
                          .steps = 2,
                          .ranks = 6,
                          .replicas = 2,
                          .processes = 3,
                          .threads = 1,
                          .device = "cuda",
                          .unordered = "layer 1 Upsample",
                          .rounding = "1e-2"};

StepResult Step(int64_t step) {
  StepResult result;
  result.step = step;
  result.loss = 0.1 * static_cast<double>(step + 1);
  result.micro_batch_losses = {0.05, 0.15};
  result.gradients = {{"0.weight", "aa", 1}};
  return result;
}

TEST(RunRecorderTest, KeepsEverything) {
  CapturedTerminal captured;
  RunRecorder recorder(captured.terminal());
  recorder.OnMessage(JobListener::kStarter, PlannedMessage(kPlan));
  recorder.OnMessage(0, VerifiedStepMessage(Step(0)));
  recorder.OnMessage(0, VerifiedStepMessage(Step(1)));
  recorder.OnMessage(0, ParametersMessage({{"0.weight", "cc", 3}}));

  const RunRecord expected = {kPlan.name, {Step(0), Step(1)}, {{"0.weight", "cc", 3}}};
  EXPECT_EQ(FirstDifference(expected, recorder.record()), "");
  EXPECT_EQ(recorder.record().name, "pipe 3, 1f1b, gloo");
  EXPECT_EQ(recorder.planned().steps, 2);
  EXPECT_EQ(recorder.planned().ranks, 6);
  EXPECT_EQ(recorder.planned().replicas, 2);
  EXPECT_EQ(recorder.planned().threads, 1);
  EXPECT_EQ(recorder.planned().device, "cuda");
  EXPECT_EQ(recorder.planned().unordered, "layer 1 Upsample");
  EXPECT_EQ(recorder.planned().rounding, "1e-2");
  EXPECT_EQ(captured.Text(), "");
}

TEST(RunRecorderTest, ShowsHowFarItIs) {
  ::setenv("TERM", "xterm", 1);
  Pty pty;
  Terminal terminal(pty.program.get(), pty.program.get());
  RunRecorder recorder(terminal);
  recorder.OnMessage(JobListener::kStarter, PlannedMessage(kPlan));
  recorder.OnMessage(0, VerifiedStepMessage(Step(0)));
  EXPECT_THAT(pty.ReadUntil("1/2"), HasSubstr("training with pipe 3, 1f1b, gloo: step 1/2"));
}

TEST(RunRecorderTest, ShowsHowFarLongWorkOfRank0Is) {
  CapturedTerminal captured;
  RunRecorder recorder(captured.terminal());
  recorder.OnMessage(0, ProgressMessage("building layers, 1 of 2"));
  recorder.OnMessage(1, ProgressMessage("building layers, 2 of 2"));
  EXPECT_EQ(captured.Text(), "strata: building layers, 1 of 2\n");
}

TEST(RunRecorderTest, PassesOnWhatRanksPrint) {
  CapturedTerminal captured;
  RunRecorder recorder(captured.terminal());
  recorder.OnOutput(0, false, "alone");
  recorder.OnMessage(JobListener::kStarter, PlannedMessage(kPlan));
  recorder.OnOutput(2, true, "one of three");
  EXPECT_EQ(captured.Text(), "alone\nrank 2: one of three\n");
}

}  // namespace
}  // namespace strata::launcher
