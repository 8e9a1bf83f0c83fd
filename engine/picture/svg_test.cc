#include "engine/picture/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/picture/testing.h"

namespace strata::picture {
namespace {

using testing::GeneratedTimeline;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SmallPicture;

/// Checks that the elements nest correctly and that texts hold no markup.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::string tag = svg.substr(at + 1, svg.find('>', at) - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::ranges::count(tag, '"') % 2, 0) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Counts the boxes: each is one stroke to the right ("h").
size_t CountBoxes(const std::string& svg) {
  const std::string begin = "<path class=\"o ";
  size_t count = 0;
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    count += Count(svg.substr(at, svg.find("/>", at) - at), "h") - 2;  // "path", "stroke-width"
  }
  return count;
}

TEST(ToSvg, DrawsTimelineMemoryAndStages) {
  const std::string svg = ToSvg(SmallPicture());
  ExpectWellFormed(svg);
  for (const char* text :
       {">tiny</text>", ">2 ranks</text>", "Timeline, predicted: 12<", ">rank 0</text>",
        ">rank 1</text>", ">F0</text>", ">B2</text>", ">F forward</text>", ">B, I backward</text>",
        "Memory, predicted: at most 1.10 KiB on a rank",
        "Stages: the slowest has 1.5 times the mean cost",
        "layer 0, 72 parameters, 3 FLOP, takes 128 B, gives 128 B"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_EQ(Count(svg, ">F0</text>"), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("W weight")));
}

TEST(ToSvg, DrawsEveryActionOnce) {
  // 8 micro-batches, forward and backward, on 4 ranks; each is one box.
  Picture picture;
  picture.timelines = {GeneratedTimeline("1f1b", {4, 1, 8})};
  for (Lane& lane : picture.timelines[0].lanes) lane.memory.clear();
  EXPECT_EQ(CountBoxes(ToSvg(picture)), 64u);
}

TEST(ToSvg, StagesAreNamedWhereRanksHaveSeveral) {
  Picture picture;
  picture.timelines = {GeneratedTimeline("interleaved_1f1b", {2, 2, 4})};
  EXPECT_THAT(ToSvg(picture), HasSubstr(">3F0</text>"));
}

TEST(ToSvg, TimesAreRounded) {
  Picture picture;
  picture.timelines = {GeneratedTimeline("1f1b", {2, 1, 3}, {.forward = {0.1}})};
  EXPECT_THAT(ToSvg(picture), HasSubstr("predicted: 8.4<"));
}

TEST(ToSvg, MeasuredTimesHaveUnits) {
  Picture picture = SmallPicture();
  picture.timelines[0].in_seconds = true;
  picture.cost_unit = "s";
  const std::string svg = ToSvg(picture);
  EXPECT_THAT(svg, HasSubstr("predicted: 12.0 s<"));
  EXPECT_THAT(svg, HasSubstr("72 parameters, 3.00 s, takes"));
}

TEST(ToSvg, NamesAreNoMarkup) {
  Picture picture = SmallPicture();
  picture.title = "</svg><script>&\"'\x01\xff";
  picture.facts = {"<b>", std::string(10'000, '<')};
  picture.timelines[0].name = "a < b && c > d";
  const std::string svg = ToSvg(picture);
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp;&amp; c &gt; d"));
}

TEST(ToSvg, GiantsFit) {
  Picture picture = SmallPicture();
  picture.timelines = {GeneratedTimeline("zb_h1", {64, 1, 256})};
  const std::string whole = ToSvg(picture);
  EXPECT_LE(whole.size(), kMaxSvgBytes);
  EXPECT_THAT(whole, Not(HasSubstr("To keep the file small")));
  picture.timelines = {GeneratedTimeline("zb_h1", {128, 1, 512})};
  const std::string part = ToSvg(picture);
  EXPECT_LE(part.size(), kMaxSvgBytes);
  EXPECT_THAT(part, HasSubstr("rank 127"));
  ExpectWellFormed(part);
}

TEST(ToSvg, AnEmptyPictureIsADrawingToo) { ExpectWellFormed(ToSvg({})); }

}  // namespace
}  // namespace strata::picture
