// Tests of what a training shows, line by line.
#include "launcher/report/train_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "launcher/terminal/pty.h"
#include "launcher/testing.h"

namespace strata::launcher {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

StepResult Step(int64_t step, double loss = 2.302585) { return ReportedStep(step, loss); }

/// A training of `steps` steps, as rank 0 reports it.
class Training {
 public:
  explicit Training(Terminal& terminal, int64_t steps, int ranks = 1, const std::string& log = "",
                    int64_t print_every = 0)
      : report(terminal, print_every) {
    report.OnMessage(JobListener::kStarter, HeaderMessage("the header", ranks, {.log = log}));
    report.OnMessage(0, StartMessage(steps, {}));
  }
  void Take(const StepResult& result) { report.OnMessage(0, StepMessage(StepRecord(result, 0.2))); }
  void TakeAll(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) Take(Step(step));
  }
  void Eval(int64_t done, bool is_last) {
    const EvalResult result = {
        .loss = 0.07654, .samples = 360, .metric = 0.9777, .has_metric = true};
    report.OnMessage(0, EvalMessage(EvalRecord(done, result), is_last));
  }

  TrainReport report;
};

class CapturedTraining : public CapturedTerminal, public Training {
 public:
  explicit CapturedTraining(int64_t steps, int ranks = 1, const std::string& log = "",
                            int64_t print_every = 0)
      : Training(terminal(), steps, ranks, log, print_every) {}
};

int CountLines(const std::string& text, std::string_view with) {
  int count = 0;
  for (const std::string& line : Split(text, '\n')) {
    if (line.find(with) != std::string::npos) ++count;
  }
  return count;
}

TEST(TrainReportTest, MetricsStandBehindTheLossAndTheTableBelow) {
  CapturedTraining training(1);
  training.Take(Step(0));
  EvalResult test = {.loss = 1, .samples = 5};
  test.is_best = true;
  test.why_stopped = "stopped";
  test.metrics.Set("r2", 0.75)
      .Set("confusion", Value::List{Value::IntList({3, 0}), Value::IntList({1, 1})});
  training.report.OnMessage(0, EvalMessage(EvalRecord(1, test), /*is_last=*/true));
  const std::string text = training.Text();
  EXPECT_THAT(text, HasSubstr("test loss 1.0000  r2 0.7500  best\n"));
  EXPECT_THAT(text, HasSubstr("\n      3      0\n      1      1\n"));
}

TEST(TrainReportTest, PartsStandBehindTheLoss) {
  CapturedTraining training(1);
  StepResult result = Step(0);
  result.parts = {{"bce", 0.5}, {"dice", 0.25}};
  training.Take(result);
  const EvalResult test = {.loss = 1, .samples = 2, .parts = {{"bce", 0.125}}};
  training.report.OnMessage(0, EvalMessage(EvalRecord(1, test), /*is_last=*/true));
  const std::string text = training.Text();
  EXPECT_EQ(CountLines(text, "loss 2.3026  bce 0.5000  dice 0.2500  grad norm"), 1);
  EXPECT_EQ(CountLines(text, "test loss 1.0000  bce 0.1250"), 1);
}

TEST(TrainReportTest, PlainLines) {
  CapturedTraining training(2);
  training.TakeAll(2);
  training.Eval(2, true);
  training.report.OnMessage(0, TextMessage("a table"));
  EXPECT_EQ(training.Text(),
            "the header\n"
            "step 1/2  loss 2.3026  grad norm 1.2500  lr 0.05  128 samples/s  memory 3.00 MiB  "
            "bubble 20.0%  data 12.5%  250 ms left\n"
            "step 2/2  loss 2.3026  grad norm 1.2500  lr 0.05  128 samples/s  memory 3.00 MiB  "
            "bubble 20.0%  data 12.5%\n"
            "median step 250 ms\n"
            "test loss 0.0765  accuracy 0.978\n"
            "a table\n");
}

TEST(TrainReportTest, OneRankSaysHowFarItIs) {
  CapturedTerminal captured;
  double now = 10;
  TrainReport report(captured.terminal(), 0, [&] { return now; });
  const auto say = [&](double at, int rank, const std::string& line) {
    now = at;
    report.OnMessage(rank, ProgressMessage(line));
  };
  report.OnMessage(JobListener::kStarter, HeaderMessage("the header", 2));
  say(12, 1, "building layers of stage 1, 2 of 9");
  say(12.1, 0, "building layers of stage 0, 2 of 9");
  for (const double at : {14, 16}) {
    say(at, 0, "building layers of stage 0");
    say(at + 0.1, 1, "unheard");
  }
  say(18.1, 1, "unheard");
  say(20.1, 1, "placing parameters, 40 %");  // rank 0 waits
  EXPECT_EQ(captured.Text(),
            "the header\n"
            "strata: rank 1: building layers of stage 1, 2 of 9\n"
            "strata: building layers of stage 0, 2 of 9\n"
            "strata: building layers of stage 0\n"
            "strata: building layers of stage 0\n"
            "strata: rank 1: placing parameters, 40 %\n");
}

TEST(TrainReportTest, ALongTrainingHasAboutFiftyLines) {
  CapturedTraining training(999);
  training.TakeAll(999);
  const std::string text = training.Text();
  EXPECT_EQ(CountLines(text, "loss"), 51);
  EXPECT_THAT(text, HasSubstr("step   1/999"));
  EXPECT_THAT(text, HasSubstr("step  20/999"));
  EXPECT_THAT(text, HasSubstr("step 999/999"));
}

TEST(TrainReportTest, ALinePerSoManySteps) {
  CapturedTraining training(9, 1, "", 4);
  training.TakeAll(9);
  EXPECT_EQ(CountLines(training.Text(), "loss"), 4);  // of the steps 1, 4, 8 and 9
}

TEST(TrainReportTest, WhatIsMeasuredStandsBesideWhatWasPredicted) {
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 2);
  report.OnMessage(JobListener::kStarter,
                   HeaderMessage("", 2, {.sample_flops = 1e9, .peak_flops = 512e9}));
  report.OnMessage(0, StartMessage(2, {}));
  for (const int64_t step : {0, 1}) {
    StepResult result = Step(step);
    result.idle_share = 0.5;
    result.seconds = step == 0 ? 0.25 : 0.75;
    report.OnMessage(0, StepMessage(StepRecord(result, 0.2)));
  }
  const std::string text = captured.Text();
  EXPECT_THAT(text, HasSubstr("128 samples/s  128 GFLOP/s (25% of peak)  memory 3.00 MiB  "
                              "bubble 50.0% (20.0% predicted)  data 12.5%"));
  EXPECT_THAT(text, HasSubstr("  42.7 GFLOP/s (8% of peak)  "));
}

TEST(TrainReportTest, ANarrowTerminalLeavesOutWhatMattersLeast) {
  ::setenv("TERM", "xterm", 1);
  const auto line_at = [](unsigned short columns) {
    Pty pty;
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(pty.program.get(), TIOCSWINSZ, &size), 0);
    Terminal terminal(pty.program.get(), pty.program.get());
    TrainReport report(terminal, 1);
    report.OnMessage(JobListener::kStarter, HeaderMessage("", 1, {.sample_flops = 1e9}));
    report.OnMessage(0, StartMessage(1, {}));
    report.OnMessage(0, StepMessage(StepRecord(Step(0), 0.2)));
    terminal.Line("end");
    const std::string shown = pty.ReadUntil("end");
    const size_t begin = shown.find("step 1/1");
    return shown.substr(begin, shown.find("\r", begin) - begin);
  };
  EXPECT_EQ(line_at(200),
            "step 1/1  loss 2.3026  grad norm 1.2500  lr 0.05  128 samples/s  128 GFLOP/s  memory "
            "3.00 MiB  bubble 20.0%  data 12.5%");
  EXPECT_EQ(line_at(80),
            "step 1/1  loss 2.3026  grad norm 1.2500  lr 0.05  128 samples/s  bubble 20.0%");
  EXPECT_EQ(line_at(40), "step 1/1  loss 2.3026  128 samples/s");
  EXPECT_EQ(line_at(10), "step 1/1  loss 2.3026");
}

TEST(TrainReportTest, SlowRanksAreNamedWithTheirHosts) {
  CapturedTraining training(20, 2);
  training.report.set_hosts({"host1", "host2"});
  const Value record = StepRecord(Step(11), 0.2).Set("stragglers", Value::MakeMap({{"1", 2.46}}));
  training.report.OnMessage(0, StepMessage(record));
  EXPECT_THAT(training.Text(),
              HasSubstr("step 12/20  rank 1 (host2) is slow: 2.5 times what it would "
                        "take at the others' pace\n"));
}

TEST(TrainReportTest, RowsOfTokensAreCountedAsTokens) {
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 0);
  report.OnMessage(JobListener::kStarter, HeaderMessage("", 1, {.tokens_per_sample = 64}));
  report.OnMessage(0, StartMessage(1, {}));
  report.OnMessage(0, StepMessage(StepRecord(Step(0), 0.2)));
  EXPECT_THAT(captured.Text(), HasSubstr("  8,192 tokens/s  "));
}

TEST(TrainReportTest, ALineTellsOfAllStepsSinceTheLast) {
  CapturedTraining training(9, 1, "", 9);
  training.Take(Step(0));
  for (int64_t step = 1; step < 9; ++step) {
    StepResult result = Step(step);
    result.seconds = step == 8 ? 9 : 1;
    result.peak_memory = step == 5 ? 8 << 20 : 1 << 20;
    training.Take(result);
  }
  EXPECT_THAT(training.Text(),
              HasSubstr("step 9/9  loss 2.3026  grad norm 1.2500  lr 0.05  16.0 samples/s  "
                        "memory 8.00 MiB"));
}

TEST(TrainReportTest, SmallAndOddLosses) {
  CapturedTraining training(3);
  training.Take(Step(0, 1.23456e-7));
  training.Take(Step(1, std::numeric_limits<double>::quiet_NaN()));
  training.Take(Step(2, std::numeric_limits<double>::infinity()));
  const std::string text = training.Text();
  EXPECT_THAT(text, HasSubstr("loss 1.235e-07"));
  EXPECT_THAT(text, HasSubstr("loss nan"));
  EXPECT_THAT(text, HasSubstr("loss inf"));
}

TEST(TrainReportTest, MicroBatchLosses) {
  CapturedTraining training(1);
  StepResult result = Step(0);
  result.micro_batch_losses = {2.25, 2.5};
  training.Take(result);
  EXPECT_THAT(training.Text(), EndsWith("step 1/1  micro-batches 2.2500 2.5000\n"));
}

TEST(TrainReportTest, EvaluationsBetween) {
  CapturedTraining training(200);
  training.TakeAll(100);
  training.Eval(100, false);
  EXPECT_THAT(training.Text(), EndsWith("step 100/200  test loss 0.0765  accuracy 0.978\n"));
}

TEST(TrainReportTest, SamplesStandBelowEachOther) {
  CapturedTraining training(20);
  training.TakeAll(5);
  for (int i = 0; i < 2; ++i) {
    training.report.OnMessage(
        0,
        SamplesMessage(SamplesRecord(5, {"Once upon\na time", "The \x1b[2J"}), "layer 3 differs"));
  }
  const std::string text = training.Text();
  EXPECT_EQ(CountLines(text, "note: layer 3 differs: the whole text runs for every token"), 1);
  EXPECT_THAT(text, HasSubstr("\nstep  5/20  sample  Once upon\n"
                              "                    a time\n"
                              "step  5/20  sample  The \xef\xbf\xbd[2J\n"));
}

TEST(TrainReportTest, GoesOnAfterASave) {
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 0);
  report.OnMessage(JobListener::kStarter, HeaderMessage("the header", 1));
  report.OnMessage(0, StartMessage(4, {.step = 2, .from = "runs/step-00000002", .notes = {"hm"}}));
  for (const int64_t step : {2, 3}) report.OnMessage(0, StepMessage(StepRecord(Step(step), 0)));
  const std::string text = captured.Text();
  EXPECT_THAT(text,
              StartsWith("the header\ngoes on after step 2 of runs/step-00000002\nhm\nstep 3/4"));
  EXPECT_THAT(text, HasSubstr("step 4/4"));
}

TEST(TrainReportTest, BeginsWithWeights) {
  CapturedTraining training(1);
  training.report.OnMessage(0, StartMessage(1, {.from = "a.safetensors"}));
  EXPECT_THAT(training.Text(), EndsWith("begins with the weights of a.safetensors\n"));
}

TEST(TrainReportTest, Saves) {
  CapturedTraining training(9);
  training.report.OnMessage(
      0, SaveMessage({.step = 4, .path = "runs/a", .bytes = 2 << 20, .seconds = 0.5}));
  training.report.OnMessage(0, SaveMessage({.step = 8, .error = "disk full"}));
  training.report.OnMessage(0, SaveMessage({.step = 8, .error = "disk full", .is_best = true}));
  EXPECT_THAT(
      training.Text(),
      EndsWith("saved step 4 to runs/a, 2.00 MiB in 500 ms\n"
               "strata: step 8 was not saved, the training goes on: disk full\n"
               "strata: the best save of step 8 failed, the training goes on: disk full\n"));
}

TEST(TrainReportTest, SeveralRanksHaveNames) {
  CapturedTraining training(1, 2);
  training.report.OnOutput(1, false, "hello");
  training.report.OnOutput(0, true, "warning");
  EXPECT_THAT(training.Text(), EndsWith("rank 1: hello\nrank 0: warning\n"));
}

TEST(TrainReportTest, OneRankHasNone) {
  CapturedTraining training(1, 1);
  training.report.OnOutput(0, false, "hello");
  EXPECT_THAT(training.Text(), EndsWith("the header\nhello\n"));
}

TEST(TrainReportTest, RanksOnSeveralMachinesHaveTheirHosts) {
  CapturedTraining training(1, 2);
  training.report.set_hosts({"host1", "host2"});
  training.report.OnOutput(1, false, "hello");
  training.report.OnOutput(JobListener::kStarter, true, "[host2] a warning of ssh");
  EXPECT_THAT(training.Text(), EndsWith("[host2:1] hello\n[host2] a warning of ssh\n"));
}

TEST(TrainReportTest, TheBarOfATerminalGoesAway) {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);
  Pty pty;
  Terminal terminal(pty.program.get(), pty.program.get());
  Training training(terminal, 2);
  training.Take(Step(0));
  EXPECT_THAT(pty.ReadUntil(" left"),
              HasSubstr("\r\033[K[###########-----------] 50%  step 1/2  loss 2.3026  250 ms"));
  training.Take(Step(1));
  terminal.Line("end");
  EXPECT_THAT(pty.ReadUntil("end"), EndsWith("128 samples/s  bubble 20.0%\r\n"  // 80 columns
                                             "\r\033[K[###########-----------] 50%  step 1/2  "
                                             "loss 2.3026  250 ms left\r\033[K"
                                             "median step 250 ms\r\nend"));
}

TEST(TrainReportTest, ANarrowTerminalCutsTheBarAndSaysTheTimeLeft) {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);
  constexpr char kSaid[] = "50%  step 1/2  loss 2.3026  250 ms left";
  const std::pair<unsigned short, const char*> bars[] = {{50, "\r\033[K[###----] "},
                                                         {40, "\r\033[K"}};
  for (const auto& [columns, bar] : bars) {
    Pty pty;
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(pty.program.get(), TIOCSWINSZ, &size), 0);
    Terminal terminal(pty.program.get(), pty.program.get());
    Training training(terminal, 2);
    training.Take(Step(0));
    EXPECT_THAT(pty.ReadUntil(" left"), EndsWith(Str(bar, kSaid)));
  }
}

TEST(TrainReportTest, ATerminalShowsThatItStartsAndEvaluates) {
  ::setenv("TERM", "xterm", 1);
  Pty pty;
  Terminal terminal(pty.program.get(), pty.program.get());
  Training training(terminal, 1);
  EXPECT_THAT(pty.ReadUntil("starting"), HasSubstr("the header"));
  training.Take(Step(0));
  training.report.OnMessage(0, EvalStartMessage());
  EXPECT_THAT(pty.ReadUntil("evaluating"), HasSubstr("step 1/1"));
  training.Eval(1, true);
  EXPECT_THAT(pty.ReadUntil("0.978\r\n"), StartsWith("\r\033[Ktest loss"));
}

TEST(TrainReportTest, ATerminalNoLongerSaysThatItEvaluates) {
  ::setenv("TERM", "xterm", 1);
  const Value samples = SamplesMessage(SamplesRecord(1, {"Once"}), "");
  const Value test = EvalMessage(EvalRecord(1, {.loss = 1, .samples = 9}), /*is_last=*/false);
  for (const auto& [begins, ends] :
       {std::pair(EvalStartMessage(), test), std::pair(SamplesStartMessage(), samples)}) {
    Pty pty;
    Terminal terminal(pty.program.get(), pty.program.get());
    Training training(terminal, 9);
    training.report.OnMessage(0, begins);
    training.report.OnMessage(0, ends);
    terminal.Line("end");
    const std::string shown = pty.ReadUntil("end");
    const std::string status = begins == EvalStartMessage() ? "evaluating" : "writing samples";
    EXPECT_EQ(shown.find(status), shown.rfind(status)) << shown;
  }
}

class LogTest : public testing::Test {
 protected:
  std::string path = testing::TempDir() + "/log.jsonl";
  std::string Read() {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
};

TEST_F(LogTest, HoldsEveryStepAndEvaluationAtOnce) {
  std::ofstream(path) << "an old log\n";
  CapturedTraining training(100, 1, path, 100);
  training.TakeAll(3);
  training.Eval(3, false);
  const std::vector<std::string> lines = Split(Read(), '\n');
  ASSERT_EQ(lines.size(), 6u);  // the last element is empty, after the last newline
  EXPECT_EQ(Value::FromJson(lines[0])["run"]["steps"], Value(100));
  EXPECT_EQ(Value::FromJson(lines[1])["step"], Value(0));
  EXPECT_EQ(Value::FromJson(lines[3])["step"], Value(2));
  EXPECT_EQ(Value::FromJson(lines[4])["accuracy"], Value(0.9777));
}

TEST_F(LogTest, StaysWhereTheTrainingIsRefused) {
  CapturedTerminal captured;
  std::ofstream(path) << "an old log\n";
  TrainReport report(captured.terminal(), 0);
  report.OnMessage(JobListener::kStarter, HeaderMessage("", 1, {.log = path}));
  report.OnEnd("failed");
  EXPECT_EQ(Read(), "an old log\n");
  report.OnMessage(0, StartMessage(9, {}));
  EXPECT_THAT(Read(), StartsWith("{\"step\":0,\"run\":{"));
}

/// Starts a training with a log that continues another one as `start` says.
void GoOn(TrainReport& report, const std::string& log, StartReport start) {
  report.OnMessage(JobListener::kStarter, HeaderMessage("", 1, {.log = log, .goes_on = true}));
  report.OnMessage(0, StartMessage(9, start));
}

// The killed training had done more steps than it had saved.
TEST_F(LogTest, GoesOnWithTheTrainingAndHasNoStepTwice) {
  CapturedTerminal captured;
  for (const bool owes : {false, true}) {
    Training training(captured.terminal(), 9, 1, path);
    training.TakeAll(2);
    training.Eval(2, false);
    training.report.OnMessage(0, SamplesMessage(SamplesRecord(2, {"Once"}), ""));
    for (const int step : {2, 3}) training.Take(Step(step));
    training.report.OnEnd("stopped");
    std::ofstream(path, std::ios::app) << "{\"step\":4,\"lo";
    TrainReport report(captured.terminal(), 0);
    GoOn(report, path, {.step = 2, .owes_evaluation = owes, .owes_samples = true});
    report.OnMessage(0, StepMessage(StepRecord(Step(2), 0)));
    std::vector<std::string> held;
    for (const std::string& line : Split(Trim(Read()), '\n')) {
      const Value record = Value::FromJson(line);
      std::string text = std::to_string(record["step"].as_int());
      for (const char* kind : {"run", "test_loss", "texts", "end"}) {
        if (record.Has(kind)) text += Str(" ", kind);
      }
      held.push_back(text);
    }
    const std::vector<std::string> all = {"0 run", "0", "1", "1 test_loss", "2 run", "2"},
                                   without = {"0 run", "0", "1", "2 run", "2"};
    EXPECT_EQ(held, owes ? without : all);
  }
}

TEST_F(LogTest, KeepsTheSamplesOfATrainingThatHasStopped) {
  CapturedTerminal captured;
  Training training(captured.terminal(), 9, 1, path);
  training.TakeAll(2);
  training.Eval(2, false);
  training.report.OnMessage(0, SamplesMessage(SamplesRecord(2, {"Once"}), ""));
  const std::string before = Read();
  TrainReport report(captured.terminal(), 0);
  GoOn(report, path, {.step = 2, .why_over = "stopped"});
  EXPECT_THAT(Read(), StartsWith(before));
  EXPECT_THAT(Read().substr(before.size()), StartsWith("{\"step\":2,\"run\":"));
}

TEST_F(LogTest, SaysHowATrainingEndsAndGoesOnWithoutThat) {
  CapturedTerminal captured;
  Training training(captured.terminal(), 2, 1, path);
  training.TakeAll(2);
  training.report.OnEnd("done");
  const std::string end = "{\"step\":2,\"end\":\"done\",\"version\":1}\n";
  EXPECT_THAT(Read(), EndsWith(end));
  TrainReport report(captured.terminal(), 0);
  GoOn(report, path, {.step = 2});
  EXPECT_THAT(Read(), Not(HasSubstr("\"end\"")));
}

TEST_F(LogTest, WhatItLacksIsTold) {
  const auto told = [&](int64_t done) {
    CapturedTerminal captured;
    Training training(captured.terminal(), 9, 1, path);
    training.TakeAll(3);
    training.Eval(3, false);
    TrainReport report(captured.terminal(), 0);
    GoOn(report, path, {.step = done});
    const std::string text = captured.Text();
    const size_t begin = text.find("the log lacks");
    return begin == text.npos ? "" : text.substr(begin);
  };
  EXPECT_EQ(told(2), "");
  EXPECT_EQ(told(3), "");
  EXPECT_EQ(told(4), "the log lacks step 3\n");
  EXPECT_EQ(told(7), "the log lacks steps 3 to 6\n");
  const auto lost = [&](int64_t done) {  // a run that was killed before its first record
    CapturedTerminal captured;
    TrainReport report(captured.terminal(), 0);
    GoOn(report, path, {.step = done});
    return captured.Text();
  };
  lost(5);
  EXPECT_THAT(lost(6), HasSubstr("the log lacks steps 3 to 5\n"));
  std::ofstream(path).close();
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 0);
  GoOn(report, path, {.step = 4});
  EXPECT_THAT(captured.Text(), Not(HasSubstr("lacks"))) << "it begins here";
}

TEST_F(LogTest, NothingIsWrittenOnceFilesStop) {
  CapturedTraining training(9, 1, path, 1);
  training.Take(Step(0));
  training.report.StopFiles();
  training.Take(Step(1));
  training.report.OnEnd("failed");
  EXPECT_EQ(Split(Trim(Read()), '\n').size(), 2u);
  EXPECT_THAT(training.Text(), HasSubstr("step 2/9"));
}

TEST_F(LogTest, OneReportHearsAllRunsOfAJob) {
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 0);
  report.OnMessage(JobListener::kStarter, HeaderMessage("", 1, {.log = path}));
  report.OnMessage(0, StartMessage(9, {}));
  for (int step = 0; step < 3; ++step) report.OnMessage(0, StepMessage(StepRecord(Step(step), 0)));
  EXPECT_EQ(report.furthest(), 3);
  GoOn(report, path, {.step = 1});
  report.OnMessage(0, StepMessage(StepRecord(Step(1), 0)));
  EXPECT_EQ(report.furthest(), 3);
  EXPECT_EQ(Split(Trim(Read()), '\n').size(), 4u);
}

TEST_F(LogTest, AJobGoesOnFromWhatItHasSaved) {
  CapturedTerminal captured;
  TrainReport report(captured.terminal(), 0);
  const std::string dir = testing::TempDir() + "/none";
  report.OnMessage(JobListener::kStarter,
                   HeaderMessage("", 1, {.save_dir = dir, .takes_weights = true}));
  report.OnMessage(0, StartMessage(9, {.from = "weights.safetensors"}));
  EXPECT_EQ(report.saves().Resume(), "");
  report.OnMessage(0, SaveMessage({.step = 1, .error = "disk full"}));
  EXPECT_EQ(report.saves().Resume(), "");
  report.OnMessage(0, SaveMessage({.step = 2, .path = dir + "/step-00000002"}));
  EXPECT_EQ(report.saves().Resume(), "latest");
}

TEST_F(LogTest, AFileThatCannotBeMadeIsAnError) {
  CapturedTerminal captured;
  EXPECT_THAT(ErrorOf([&] { Training(captured.terminal(), 1, 1, "/dev/null/log.jsonl"); }),
              "cannot write to the log /dev/null/log.jsonl: Not a directory");
}

TEST_F(LogTest, AFullDiskIsAnErrorThatNamesTheFile) {
  EXPECT_THAT(ErrorOf([&] { CapturedTraining(1, 1, "/dev/full"); }),
              "cannot write to the log /dev/full: No space left on device");
}

TEST(LinesEveryTest, IsARoundNumber) {
  EXPECT_EQ(LinesEvery(1), 1);
  EXPECT_EQ(LinesEvery(50), 1);
  EXPECT_EQ(LinesEvery(51), 2);
  EXPECT_EQ(LinesEvery(102), 5);
  EXPECT_EQ(LinesEvery(200), 5);
  EXPECT_EQ(LinesEvery(1'000'000), 20'000);
}

// Messages from another machine arrive as JSON; the report must show the same for them.
TEST(TrainReportTest, MessagesSurviveTheWay) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  StepResult with_losses = Step(1, kNan);
  with_losses.micro_batch_losses = {0.5, kNan};
  const std::vector<Value> messages = {
      HeaderMessage("the header", 2),
      StartMessage(3, {.step = 1, .from = "runs/a", .notes = {"a note", "\"another\"\t"}}),
      StepMessage(StepRecord(with_losses, 0.25)),
      EvalStartMessage(),
      EvalMessage(EvalRecord(2, {.loss = kNan, .samples = 9}), false),
      SaveMessage({.step = 2, .path = "runs/b", .bytes = 1 << 20, .seconds = 0.25}),
      StepMessage(StepRecord(Step(2), 0.25)),
      EvalMessage(EvalRecord(3, {.loss = 1, .samples = 9, .metric = 0.5, .has_metric = true}),
                  true),
      SaveMessage({.step = 3, .error = "disk \"full\""}),
      TextMessage("\xC3\xA9nd")};
  CapturedTerminal direct, through_json;
  TrainReport here(direct.terminal(), 1), there(through_json.terminal(), 1);
  for (const Value& message : messages) {
    here.OnMessage(0, message);
    there.OnMessage(0, Value::FromJson(message.ToJson()));
  }
  const std::string text = direct.Text();
  EXPECT_EQ(text, through_json.Text());
  EXPECT_EQ(
      text,
      "the header\n"
      "goes on after step 1 of runs/a\n"
      "a note\n"
      "\"another\"\t\n"
      "step 2/3  loss nan  grad norm 1.2500  lr 0.05  128 samples/s  memory 3.00 MiB  bubble "
      "25.0%  data 12.5%  250 ms left\n"
      "step 2/3  micro-batches 0.5000 nan\n"
      "step 2/3  test loss nan\n"
      "saved step 2 to runs/b, 1.00 MiB in 250 ms\n"
      "step 3/3  loss 2.3026  grad norm 1.2500  lr 0.05  128 samples/s  memory 3.00 MiB  bubble "
      "25.0%  data 12.5%\n"
      "median step 250 ms\n"
      "test loss 1.0000  accuracy 0.500\n"
      "strata: step 3 was not saved, the training goes on: disk \"full\"\n"
      "\xC3\xA9nd\n");
}

}  // namespace
}  // namespace strata::launcher
