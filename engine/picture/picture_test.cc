#include "engine/picture/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/picture/testing.h"

namespace strata::picture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CleanText, HasNoByteThatADocumentCannotHold) {
  EXPECT_EQ(CleanText("</script> \"größe\" 'a' & <b>"), "</script> \"größe\" 'a' & <b>");
  EXPECT_EQ(CleanText(std::string("a\0b\n\x1b[31m", 9)), "a\uFFFDb\uFFFD\uFFFD[31m");
  EXPECT_EQ(CleanText("\xff\xfe"), "\uFFFD\uFFFD");
  EXPECT_EQ(CleanText("\uFFFE\uFFFF"), "\uFFFD\uFFFD");
}

TEST(CleanText, IsCutBetweenCharacters) {
  EXPECT_EQ(CleanText("12345678", 8), "12345678");
  EXPECT_EQ(CleanText("123456789", 8), "12345...");
  EXPECT_EQ(CleanText("1234\u00f6789", 8), "1234...");
  EXPECT_EQ(CleanText("\u00f6\u00f6\u00f6\u00f6\u00f6", 8), "\u00f6\u00f6...");
  EXPECT_LE(CleanText(std::string(size_t{1} << 20, '\n')).size(), 120u);
}

TEST(WriteWithin, LeavesOutMessagesThenRanks) {
  Picture picture;
  picture.timelines = {testing::GeneratedTimeline("gpipe", {5, 1, 1})};
  std::vector<std::string> notes;
  size_t left = 4;
  const std::string text = WriteWithin(10, picture, [&](const Detail& detail) {
    notes.push_back(detail.Note());
    return --left > 0 ? std::string(11, 'x') : "small";
  });
  EXPECT_EQ(text, "small");
  EXPECT_THAT(
      notes, ElementsAre("", "To keep the file small, sends and receives are left out.",
                         "To keep the file small, sends and receives are left out, and only one of "
                         "every 2 ranks, and the last, is drawn.",
                         "To keep the file small, sends and receives are left out, and only one of "
                         "every 4 ranks, and the last, is drawn."));
}

TEST(WriteWithin, RefusesWhatNeverFits) {
  Picture picture;
  picture.timelines = {testing::GeneratedTimeline("gpipe", {3, 1, 1})};
  EXPECT_THAT(ConfigErrorOf([&] {
                WriteWithin(10, picture, [](const Detail&) { return std::string(11, 'x'); });
              }),
              HasSubstr("fewer micro-batches make a smaller one"));
}

TEST(Detail, ShowsTheFirstTheLastAndSomeBetween) {
  const Detail detail{.communication = false, .every = 4};
  std::vector<size_t> shown;
  for (size_t lane = 0; lane < 11; ++lane) {
    if (detail.ShowsLane(lane, 11)) shown.push_back(lane);
  }
  EXPECT_THAT(shown, ElementsAre(0, 4, 8, 10));
}

TEST(Timeline, EndsWithItsLastAction) {
  EXPECT_EQ(Timeline().span(), 0);
  EXPECT_EQ(testing::GeneratedTimeline("1f1b", {3, 1, 4}).span(), 18);
}

}  // namespace
}  // namespace strata::picture
