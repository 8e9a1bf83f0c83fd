#include "launcher/report/line_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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

TEST_F(LineLogTest, WhatIsNoFileIsLeftAlone) {
  LineLog log("the log", "/dev/full", true);
  log.CutFrom([](std::string_view) { return true; });
  EXPECT_EQ(log.FirstLine(), "");
  EXPECT_THAT(ErrorOf([&] { log.Write("x"); }), HasSubstr("cannot write to the log /dev/full"));
}

}  // namespace
}  // namespace strata::launcher
