#include "launcher/report/line_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/fd.h"
#include "engine/base/testing.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

class LineLogTest : public testing::Test {
 protected:
  std::string Read() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void Begin(const std::string& text) const { std::ofstream(path_) << text; }

  const std::string path_ = testing::TempDir() + "/log.txt";
};

TEST_F(LineLogTest, GoesOnOrBegins) {
  Begin("old\n");
  LineLog("the log", path_, /*goes_on=*/true).Write("new");
  EXPECT_EQ(Read(), "old\nnew\n");
  LineLog("the log", path_, /*goes_on=*/false).Write("first");
  EXPECT_EQ(Read(), "first\n");
}

TEST_F(LineLogTest, MakesItsFolder) {
  const std::string folder = testing::TempDir() + "/line_log_folder";
  std::filesystem::remove_all(folder);
  LineLog("the log", folder + "/a/log.txt", /*goes_on=*/true).Write("first");
  EXPECT_TRUE(std::filesystem::exists(folder + "/a/log.txt"));
}

TEST_F(LineLogTest, BeginsLater) {
  Begin("old\n");
  LineLog log("the log", path_, /*goes_on=*/true);
  log.Clear();
  EXPECT_EQ(Read(), "");
  log.Write("first");
  EXPECT_EQ(Read(), "first\n");
  LineLog("the log", "/dev/full", true).Clear();
}

TEST_F(LineLogTest, WhatComesAgainIsCutOffWithAllBehindIt) {
  const struct {
    const char *before, *after;
  } kCases[] = {{"a\nb\nagain\nc\n", "a\nb\n"},
                {"again\n", ""},
                {"a\nb\n", "a\nb\n"},
                {"a\nhal", "a\n"},
                {"again", ""},
                {"", ""},
                {"a\n\nb\n", "a\n\nb\n"},
                {"a\nagain", "a\n"}};
  for (const auto& [before, after] : kCases) {
    Begin(before);
    LineLog log("the log", path_, true);
    log.CutFrom([](std::string_view line) { return line == "again"; });
    EXPECT_EQ(Read(), after) << before;
    log.Write("next");
    EXPECT_EQ(Read(), after + std::string("next\n"));
  }
}

TEST_F(LineLogTest, ALineOfSomethingElseIsNamedAndTheFileStays) {
  const auto comes_again = [](std::string_view line) {
    return ComesAgain(Value::FromJson(line), {.done = 2});
  };
  for (const std::string wrong :
       {"half a line", "[1]", "{}", "{\"step\": \"x\"}", "{\"step\": 1e300}"}) {
    const std::string text = "{\"step\": 0}\n" + wrong + "\n{\"step\": 1}\n";
    Begin(text);
    LineLog log("the log", path_, true);
    EXPECT_THAT(ConfigErrorOf([&] { log.CutFrom(comes_again); }),
                HasSubstr("the log " + path_ +
                          ":2: the training continues this log, but the line is no record"))
        << wrong;
    EXPECT_EQ(Read(), text);
  }
}

TEST_F(LineLogTest, WhatIsNoFileIsLeftAlone) {
  LineLog log("the log", "/dev/full", true);
  log.CutFrom([](std::string_view) { return true; });
  EXPECT_EQ(log.FirstLine(), "");
  EXPECT_THAT(ErrorOf([&] { log.Write("x"); }), HasSubstr("cannot write to the log /dev/full"));
}

TEST_F(LineLogTest, AFifoNeedsAReader) {
  const std::string fifo = testing::TempDir() + "/fifo";
  std::filesystem::remove(fifo);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_EQ(ErrorOf([&] { LineLog("the log", fifo, true); }),
            "cannot write to the log " + fifo + ": nobody reads from it");
  const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  LineLog("the log", fifo, true).Write("x");
  char text[8] = {};
  EXPECT_EQ(::read(reader.get(), text, sizeof(text)), 2);
  EXPECT_STREQ(text, "x\n");
}

}  // namespace
}  // namespace strata::launcher
