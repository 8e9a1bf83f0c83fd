// Tests of cutting bytes into lines.
#include "launcher/process/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kLongest = 1000;

struct Collected {
  std::vector<std::string> lines;
  LineSplitter splitter{kLongest, LineSplitter::Overlong::kCut};
  LineSplitter::Take take = [this](std::string_view line) { lines.emplace_back(line); };

  void Add(std::string_view bytes) { splitter.Add(bytes, take); }
  void Finish() { splitter.Finish(take); }
};

TEST(LineSplitterTest, HandsOnWholeLines) {
  Collected collected;
  collected.Add("one\ntwo\nthr");
  EXPECT_THAT(collected.lines, ElementsAre("one", "two"));
  collected.Add("ee\n\n");
  EXPECT_THAT(collected.lines, ElementsAre("one", "two", "three", ""));
}

TEST(LineSplitterTest, FinishHandsOnTheRest) {
  Collected collected;
  collected.Add("no newline");
  EXPECT_THAT(collected.lines, IsEmpty());
  collected.Finish();
  EXPECT_THAT(collected.lines, ElementsAre("no newline"));
  collected.Finish();
  EXPECT_EQ(collected.lines.size(), 1u);
}

TEST(LineSplitterTest, EndlessLinesDoNotFillTheMemory) {
  Collected collected;
  collected.Add(std::string(kLongest + 1, 'x'));
  EXPECT_THAT(collected.lines, ElementsAre(std::string(kLongest + 1, 'x')));
}

TEST(LineSplitterTest, AMessageWithoutAnEndIsAnError) {
  LineSplitter splitter(kLongest, LineSplitter::Overlong::kThrow);
  Collected collected;
  splitter.Add(std::string(kLongest, 'x'), collected.take);
  EXPECT_THROW(splitter.Add("x", collected.take), WorldError);
}

TEST(LineSplitterTest, AfterAThrowNoLineComesTwice) {
  Collected collected;
  EXPECT_THROW(
      collected.splitter.Add("one\ntwo\nthr", [](std::string_view) { throw WorldError("no"); }),
      WorldError);
  collected.Add("ee\nfour\n");
  EXPECT_THAT(collected.lines, ElementsAre("two", "three", "four"));
}

TEST(LineSplitterTest, PiecesDoNotMatter) {
  EXPECT_TRUE(rc::check([](const std::vector<std::vector<bool>>& pieces) {
    Collected whole, in_pieces;
    for (const std::vector<bool>& piece : pieces) {
      std::string bytes;
      for (bool newline : piece) bytes += newline ? '\n' : 'x';
      whole.Add(bytes);
      for (char byte : bytes) in_pieces.Add({&byte, 1});
    }
    RC_ASSERT(whole.lines == in_pieces.lines);
  }));
}

}  // namespace
}  // namespace strata::launcher
