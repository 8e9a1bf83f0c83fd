#include "launcher/process/streams/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Collected {
  std::vector<std::string> lines;
  LineSplitter splitter{[this](std::string_view line) { lines.emplace_back(line); }};
};

TEST(LineSplitterTest, HandsOnWholeLines) {
  Collected collected;
  collected.splitter.Add("one\ntwo\nthr");
  EXPECT_THAT(collected.lines, ElementsAre("one", "two"));
  collected.splitter.Add("ee\n\n");
  EXPECT_THAT(collected.lines, ElementsAre("one", "two", "three", ""));
}

TEST(LineSplitterTest, FinishHandsOnTheRest) {
  Collected collected;
  collected.splitter.Add("no newline");
  EXPECT_THAT(collected.lines, IsEmpty());
  collected.splitter.Finish();
  EXPECT_THAT(collected.lines, ElementsAre("no newline"));
  collected.splitter.Finish();
  EXPECT_EQ(collected.lines.size(), 1u);
}

TEST(LineSplitterTest, EndlessLinesDoNotFillTheMemory) {
  Collected collected;
  collected.splitter.Add(std::string(LineSplitter::kLongest + 1, 'x'));
  ASSERT_EQ(collected.lines.size(), 1u);
  EXPECT_EQ(collected.lines[0].size(), LineSplitter::kLongest + 1);
}

TEST(LineSplitterTest, PiecesDoNotMatter) {
  EXPECT_TRUE(rc::check([](const std::vector<std::vector<bool>>& pieces) {
    Collected whole, in_pieces;
    for (const std::vector<bool>& piece : pieces) {
      std::string bytes;
      for (bool newline : piece) bytes += newline ? '\n' : 'x';
      whole.splitter.Add(bytes);
      for (char byte : bytes) in_pieces.splitter.Add({&byte, 1});
    }
    RC_ASSERT(whole.lines == in_pieces.lines);
  }));
}

}  // namespace
}  // namespace strata::launcher
