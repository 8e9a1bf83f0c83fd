// Tests of the contents of these files. tests/step_files.py reads them as other programs do.
#include "launcher/report/step_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "launcher/report/train_report.h"
#include "launcher/testing.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class NoListener : public JobListener {
 public:
  void OnMessage(int, const Value&) override {}
  void OnOutput(int, bool, std::string_view) override {}
};

StepResult Step(int64_t step, double loss = 0.5) {
  StepResult result = ReportedStep(step, loss);
  result.parts = {{"b\"ce", 0.125}};
  return result;
}

class StepFilesTest : public testing::Test {
 protected:
  StepFilesTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  /// Runs a training with these flags: `steps` steps followed by an evaluation.
  void Run(const Value& flags, int64_t steps, StartReport start = {}) {
    NoListener nobody;
    StepFiles files(nobody, flags);
    files.OnMessage(-1, HeaderMessage("", 1, {.goes_on = start.step > 0}));
    files.OnMessage(0, StartMessage(9, start));
    for (int64_t step = start.step; step < start.step + steps; ++step) {
      files.OnMessage(0, StepMessage(StepRecord(Step(step), 0.2)));
    }
    EvalResult test = {.loss = 0.75, .samples = 9, .metric = 0.5, .has_metric = true};
    test.metrics.Set("f1", 0.25).Set("confusion", Value::List{Value::IntList({1, 2})});
    files.OnMessage(0, EvalMessage(EvalRecord(start.step + steps, test), false));
  }

  std::string Read(const std::string& path) const {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::vector<std::string> Lines(const std::string& path) const {
    return Split(Trim(Read(path)), '\n');
  }

  const std::string folder_ = testing::TempDir() + "/step_files";
  const std::string csv_ = folder_ + "/a.csv", prom_ = folder_ + "/a.prom",
                    events_ = folder_ + "/events";
};

TEST_F(StepFilesTest, ATableHasTheSameColumnsInEachLine) {
  Run(Value::MakeMap({{"csv", csv_}}), 2);
  EXPECT_THAT(
      Lines(csv_),
      ElementsAre(
          "step,loss,grad_norm,lr,samples,seconds,data_seconds,samples_per_second,peak_memory,"
          "bubble,"
          "skipped,loss_scale,test_loss,test_samples,accuracy,more",
          R"(0,0.5,1.25,0.05,32,0.25,0.03125,128.0,3145728,0.2,,,,,,"{""parts"":{""b\""ce"":0.125}}")",
          R"(1,0.5,1.25,0.05,32,0.25,0.03125,128.0,3145728,0.2,,,,,,"{""parts"":{""b\""ce"":0.125}}")",
          R"(1,,,,,,,,,,,,0.75,9,0.5,"{""metrics"":{""f1"":0.25,""confusion"":[[1,2]]}}")"));
}

TEST_F(StepFilesTest, ATableThatGoesOnHasNoLineTwice) {
  const Value flags = Value::MakeMap({{"csv", csv_}});
  for (const bool owes : {false, true}) {
    Run(flags, 2);
    Run(flags, 3, {.step = 2, .owes_evaluation = owes});
    std::vector<std::string> steps;
    for (const std::string& line : Lines(csv_)) {
      steps.push_back(Split(line, ',')[0] + (Split(line, ',')[1].empty() ? " test" : ""));
    }
    const std::vector<std::string> all = {"step", "0", "1", "1 test", "2", "3", "4", "4 test"};
    const std::vector<std::string> without = {"step", "0", "1", "2", "3", "4", "4 test"};
    EXPECT_EQ(steps, owes ? without : all);
  }
  Run(flags, 1, {.step = 3});
  EXPECT_THAT(Lines(csv_).back(), StartsWith("3,,"));
  EXPECT_EQ(Lines(csv_).size(), 6u);
}

TEST_F(StepFilesTest, ATableOfAnotherKindIsNotGoneOnWith) {
  std::ofstream(csv_) << "name,age\nBob,7\n";
  EXPECT_THAT(ConfigErrorOf([&] {
                Run(Value::MakeMap({{"csv", csv_}}), 1, {.step = 1});
              }),
              HasSubstr("it begins with \"name,age\""));
  EXPECT_EQ(Read(csv_), "name,age\nBob,7\n");
}

TEST_F(StepFilesTest, PrometheusFindsTheNewestNumbers) {
  Run(Value::MakeMap({{"prometheus", prom_}}), 3);
  const std::string text = Read(prom_);
  EXPECT_THAT(text, AllOf(HasSubstr("# HELP strata_loss Loss of the newest step"),
                          HasSubstr("\n# TYPE strata_loss gauge\nstrata_loss 0.5\n"),
                          HasSubstr("\nstrata_steps_done 3\n"), HasSubstr("\nstrata_runs 1\n"),
                          HasSubstr("\nstrata_test_accuracy 0.5\n"),
                          HasSubstr("\nstrata_loss_part{name=\"b\\\"ce\"} 0.125\n"),
                          HasSubstr("\nstrata_test_metric{name=\"f1\"} 0.25\n"),
                          Not(HasSubstr("confusion"))));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1) << "what it was written into was renamed";
}

TEST_F(StepFilesTest, PrometheusTakesNumbersThatAreNone) {
  NoListener nobody;
  {
    StepFiles files(nobody, Value::MakeMap({{"prometheus", prom_}}));
    files.OnMessage(-1, HeaderMessage("", 1));
    files.OnMessage(0, StartMessage(9, {}));
    StepResult result = Step(0, std::numeric_limits<double>::quiet_NaN());
    result.grad_norm = std::numeric_limits<double>::infinity();
    const std::string json = StepMessage(StepRecord(result, 0)).ToJson();
    files.OnMessage(0, Value::FromJson(json));
  }
  EXPECT_THAT(Read(prom_),
              AllOf(HasSubstr("\nstrata_loss NaN\n"), HasSubstr("\nstrata_gradient_norm +Inf\n")));
}

/// Splits a file of records into its messages.
std::vector<std::string> Messages(const std::string& bytes) {
  std::vector<std::string> messages;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    messages.push_back(bytes.substr(at + 12, length));
    at += 12 + length + 4;
    EXPECT_LE(at, bytes.size());
  }
  return messages;
}

TEST_F(StepFilesTest, EachRunHasAFileOfEvents) {
  const Value flags = Value::MakeMap({{"tensorboard", events_}});
  Run(flags, 2);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(events_)) {
    files.push_back(entry.path().string());
  }
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0], HasSubstr("/events.out.tfevents."));
  const std::vector<std::string> messages = Messages(Read(files[0]));
  ASSERT_EQ(messages.size(), 5u);  // the version, the beginning, two steps, an evaluation
  EXPECT_EQ(messages[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\x00\x3a\x02\x08\x01", 6));
  EXPECT_THAT(messages[3], HasSubstr(std::string("\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 13)));
  EXPECT_THAT(messages[3], HasSubstr("parts/b\"ce"));
  EXPECT_THAT(messages[4],
              AllOf(HasSubstr("test/loss"), HasSubstr("test/f1"), Not(HasSubstr("confusion"))));
}

TEST_F(StepFilesTest, HistogramsAreEventsOfTheirStep) {
  NoListener nobody;
  {
    StepFiles files(nobody, Value::MakeMap({{"tensorboard", events_}, {"csv", csv_}}));
    files.OnMessage(-1, HeaderMessage("", 1));
    files.OnMessage(0, StartMessage(9, {}));
    StepResult result = Step(2, 0.5);
    const Value histogram = Value::MakeMap({{"min", -1.0},
                                            {"max", 1.5},
                                            {"num", 3},
                                            {"sum", 0.5},
                                            {"sum_squares", 4.0},
                                            {"limits", Value::List{-1.0, 2.0}},
                                            {"counts", Value::List{1, 2}}});
    result.histograms = Value::MakeMap({{"0.weight", histogram}});
    for (const Value& record : HistogramsRecords(result)) {
      files.OnMessage(0, Value::FromJson(HistogramsMessage(record).ToJson()));
    }
  }
  const auto entry = std::filesystem::directory_iterator(events_);
  const std::vector<std::string> messages = Messages(Read(entry->path().string()));
  ASSERT_EQ(messages.size(), 3u);
  const auto bytes = [](std::initializer_list<double> numbers) {
    std::string all;
    for (const double number : numbers) {
      all.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    return all;
  };
  const std::string expected = "\x09" + bytes({-1}) + "\x11" + bytes({1.5}) + "\x19" + bytes({3}) +
                               "\x21" + bytes({0.5}) + "\x29" + bytes({4}) + "\x32\x10" +
                               bytes({-1, 2}) + "\x3a\x10" + bytes({1, 2});
  EXPECT_THAT(messages[2], AllOf(HasSubstr(std::string("\x10\x02", 2)),
                                 HasSubstr("gradients/0.weight\x2a\x51" + expected)));
  EXPECT_THAT(Read(csv_), Not(HasSubstr("0.weight")));
}

TEST_F(StepFilesTest, PrometheusMakesItsFolderAndLeavesNothingHalf) {
  const std::string path = folder_ + "/deep/er/a.prom";
  const Value flags = Value::MakeMap({{"prometheus", path}});
  Run(flags, 1);
  EXPECT_THAT(Read(path), HasSubstr("\nstrata_steps_done 1\n"));
  std::filesystem::remove(path);
  NoListener nobody;
  StepFiles files(nobody, flags);
  std::filesystem::create_directory(path);
  EXPECT_THAT(ErrorOf([&] { files.OnMessage(0, StartMessage(9, {})); }),
              HasSubstr("cannot write " + path));
  std::filesystem::remove(path);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/deep/er"));
}

TEST_F(StepFilesTest, NothingIsWrittenOnceFilesStop) {
  NoListener nobody;
  StepFiles files(nobody, Value::MakeMap({{"csv", csv_}}));
  files.OnMessage(0, StartMessage(9, {}));
  files.OnMessage(0, StepMessage(StepRecord(Step(0), 0.2)));
  const std::string before = Read(csv_);
  files.StopFiles();
  files.OnMessage(0, StepMessage(StepRecord(Step(1), 0.2)));
  EXPECT_EQ(Read(csv_), before);
}

TEST_F(StepFilesTest, PrometheusReplacesNoDevice) {
  const std::string fifo = folder_ + "/fifo", link = folder_ + "/link";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  std::filesystem::create_symlink(fifo, link);
  for (const std::string& path : {fifo, link, folder_}) {
    EXPECT_THAT(ConfigErrorOf([&] {
                  Run(Value::MakeMap({{"prometheus", path}}), 1);
                }),
                HasSubstr("--prometheus=" + path + ": this is no regular file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(StepFilesTest, AFileThatCannotBeWrittenIsNamed) {
  for (const char* flag : {"csv", "prometheus", "tensorboard"}) {
    const std::string path = "/proc/none/a";
    EXPECT_THAT(ErrorOf([&] { Run(Value::MakeMap({{flag, path}}), 1); }), HasSubstr(path)) << flag;
  }
}

}  // namespace
}  // namespace strata::launcher
