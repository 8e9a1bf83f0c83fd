// Tests of the files with the output of ranks.
#include "launcher/report/rank_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "launcher/cli_testing.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

class Lines : public JobListener {
 public:
  void OnMessage(int, const Value& message) override { text += message.ToJson(); }
  void OnOutput(int, bool, std::string_view line) override { text += Str(line, ";"); }
  std::string text;
};

TEST(RankLogsTest, AFileForEachRankThatWrites) {
  const std::string folder = testing::TempDir() + "/rank_logs/deep";
  std::filesystem::remove_all(folder);
  Lines next;
  RankLogs logs(next, folder);
  logs.OnOutput(0, false, "a");
  logs.OnOutput(10, true, "b");
  logs.OnOutput(0, true, "c");
  logs.OnMessage(0, Value::MakeMap({{"type", 7}}));
  EXPECT_EQ(next.text, "a;b;c;{\"type\":7}");
  EXPECT_EQ(ReadFile(folder + "/rank_0.log"), "a\nc\n");
  EXPECT_EQ(ReadFile(folder + "/rank_10.log"), "b\n");
}

TEST(RankLogsTest, GoesOnWithTheFilesOfTheTraining) {
  const std::string folder = testing::TempDir() + "/rank_logs/going_on";
  std::filesystem::remove_all(folder);
  Lines next;
  const auto run = [&](bool goes_on, const char* line) {
    RankLogs logs(next, folder);
    logs.OnMessage(JobListener::kStarter, JobMessage(goes_on));
    logs.OnOutput(0, false, line);
    return ReadFile(folder + "/rank_0.log");
  };
  EXPECT_EQ(run(false, "a"), "a\n");
  EXPECT_EQ(run(true, "b"), "a\nb\n");
  EXPECT_EQ(run(false, "c"), "c\n");
}

TEST(RankLogsTest, RanksThatSayNothingLeaveNoFileOfAnotherTraining) {
  const std::string folder = testing::TempDir() + "/rank_logs/silent";
  Lines next;
  const auto left = [&](bool is_alone, bool goes_on) {
    std::filesystem::remove_all(folder);
    RankLogs logs(next, folder, is_alone);
    for (const char* name : {"rank_0.log", "rank_1.log", "rank_x.log", "rank_.log"}) {
      std::ofstream(Str(folder, "/", name)) << "old\n";
    }
    logs.OnMessage(JobListener::kStarter, JobMessage(goes_on));
    logs.OnOutput(0, false, "a");
    logs.OnMessage(0, StartMessage(9, {}));
    logs.OnOutput(2, false, "b");
    logs.OnMessage(0, StartMessage(9, {}));  // the job was started again
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  const std::set<std::string> all = {"rank_.log", "rank_0.log", "rank_1.log", "rank_2.log",
                                     "rank_x.log"};
  std::set<std::string> without = all;
  without.erase("rank_1.log");
  EXPECT_EQ(left(true, false), without);
  EXPECT_EQ(left(true, true), all);
  EXPECT_EQ(left(false, false), all) << "another launcher's rank may write it";
}

TEST(RankLogsTest, NothingIsWrittenOnceFilesStop) {
  const std::string folder = testing::TempDir() + "/rank_logs/stopped";
  std::filesystem::remove_all(folder);
  Lines next;
  RankLogs logs(next, folder);
  logs.OnOutput(0, false, "a");
  logs.StopFiles();
  logs.OnOutput(0, false, "b");
  EXPECT_EQ(next.text, "a;b;");
  EXPECT_EQ(ReadFile(folder + "/rank_0.log"), "a\n");
}

TEST(RankLogsTest, MoreRanksThanDescriptors) {
  const std::string folder = testing::TempDir() + "/rank_logs/many";
  std::filesystem::remove_all(folder);
  Lines next;
  RankLogs logs(next, folder);
  rlimit old;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 40;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  for (const char* line : {"a", "b"}) {
    for (int rank = 0; rank < 256; ++rank) logs.OnOutput(rank, false, line);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  for (int rank = 0; rank < 256; ++rank) {
    EXPECT_EQ(ReadFile(Str(folder, "/rank_", rank, ".log")), "a\nb\n");
  }
}

TEST(RankLogsTest, WithoutAFolderAllGoesOn) {
  Lines next;
  RankLogs(next, "").OnOutput(0, false, "a");
  EXPECT_EQ(next.text, "a;");
}

TEST(RankLogsTest, AFolderThatCannotBe) {
  Lines next;
  EXPECT_THAT(ErrorOf([&] { RankLogs(next, "/dev/null/logs"); }), HasSubstr("--log_dir=/dev/null"));
}

}  // namespace
}  // namespace strata::launcher
