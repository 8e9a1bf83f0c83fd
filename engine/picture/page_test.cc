#include "engine/picture/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/picture/testing.h"

namespace strata::picture {
namespace {

using testing::GeneratedTimeline;
using ::testing::HasSubstr;
using testing::LaneOf;
using ::testing::Not;
using testing::SmallPicture;
using ::testing::StartsWith;

/// The data that the page's script reads.
Value DataOf(const std::string& html) {
  const std::string begin = "type=\"application/json\">";
  const size_t from = html.find(begin) + begin.size();
  return Value::FromJson(html.substr(from, html.find("</script>", from) - from));
}

TEST(ToHtml, HoldsThePicture) {
  const Value data = DataOf(ToHtml(SmallPicture()));
  EXPECT_EQ(data["title"], Value("tiny"));
  EXPECT_EQ(data["layers"].as_list()[1], Value(Value::List{"1", "Linear", "(4, 2)", 18, 1}));
  EXPECT_EQ(data["stages"].as_list()[0], Value(Value::List{0, "0", 72, 3.0, 128, 128}));
  EXPECT_EQ(data["kinds"].as_list()[1], Value("F"));
  const Value& timeline = data["timelines"].as_list()[0];
  EXPECT_EQ(timeline["span"].as_double(), 12);
  EXPECT_EQ(timeline["lane_count"].as_int(), 2);
}

void ExpectLanes(const Value& timeline, const std::vector<Lane>& lanes) {
  const double tick = timeline["tick"].as_double();
  ASSERT_EQ(timeline["lanes"].as_list().size(), lanes.size());
  for (size_t l = 0; l < lanes.size(); ++l) {
    const Lane read = LaneOf(timeline["lanes"].as_list()[l], tick);
    EXPECT_EQ(read.actions, lanes[l].actions);
    EXPECT_EQ(read.memory, lanes[l].memory);
    ASSERT_EQ(read.times.size(), lanes[l].times.size());
    for (size_t i = 0; i < read.times.size(); ++i) {
      EXPECT_NEAR(read.times[i].start, lanes[l].times[i].start, tick / 2);
      EXPECT_NEAR(read.times[i].end, lanes[l].times[i].end, tick / 2);
    }
  }
}

TEST(ToHtml, ItsLanesAreThoseOfThePicture) {
  for (const char* name : {"gpipe", "1f1b", "zb_h1", "interleaved_1f1b", "dualpipev", "zbv"}) {
    const int per_rank = name[0] == 'i' || name[0] == 'd' || name == std::string("zbv") ? 2 : 1;
    Picture picture = SmallPicture();
    picture.timelines = {GeneratedTimeline(name, {4, per_rank, 12}),
                         GeneratedTimeline(name, {4, per_rank, 12}, {.forward = {0.3}})};
    picture.timelines[1].lanes[0].memory.clear();
    const Value data = DataOf(ToHtml(picture));
    for (size_t t = 0; t < 2; ++t) {
      SCOPED_TRACE(name);
      ExpectLanes(data["timelines"].as_list()[t], picture.timelines[t].lanes);
    }
  }
}

TEST(PageData, LeavesOutWhatTheDetailSays) {
  Picture picture = SmallPicture();
  const Lane lane{.rank = 0,
                  .actions = {schedule::ParseAction("0F0"), schedule::ParseAction("0SEND_F0"),
                              schedule::ParseAction("0F1")},
                  .times = {{0, 1}, {1, 2}, {3, 4}},
                  .memory = {5, 6, 7}};
  picture.timelines = {{.name = "any", .lanes = {lane}}};
  const Value data = PageData(picture, {.communication = false, .every = 1});
  ExpectLanes(data["timelines"].as_list()[0], {{.rank = 0,
                                                .actions = {lane.actions[0], lane.actions[2]},
                                                .times = {lane.times[0], lane.times[2]},
                                                .memory = {5, 7}}});
}

TEST(ToHtml, NamesNeitherEndTheScriptNorBecomeMarkup) {
  for (const std::string name : {"</script><script>alert(1)</script>", "<!--<script>", "\"'`${x}\\",
                                 "\xff\xfe\n", "größe \u2028"}) {
    Picture picture = SmallPicture();
    picture.title = picture.facts[0] = picture.layers[0].path = picture.layers[0].type = name;
    picture.layers[1].output = picture.timelines[0].name = name;
    const std::string html = ToHtml(picture);
    const Value data = DataOf(html);
    EXPECT_EQ(data["title"], Value(CleanText(name)));
    EXPECT_EQ(data["layers"].as_list()[0].as_list()[1], Value(CleanText(name)));
    EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(html, Not(HasSubstr("<!--")));
  }
}

TEST(ToHtml, ReachesForNothingOutside) {
  const std::string html = ToHtml(SmallPicture());
  EXPECT_THAT(html, StartsWith("\n<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* word : {"://", "src=", "href", "url(", "@import", "fetch(", "innerHTML"}) {
    EXPECT_THAT(html, Not(HasSubstr(word))) << word;
  }
}

TEST(ToHtml, A64By256ProgramFits) {
  for (const char* name : {"1f1b", "zb_h1"}) {
    Picture picture = SmallPicture();
    // Like measured times, no two durations are equal.
    schedule::Costs costs;
    costs.forward = costs.input_grad = costs.weight_grad = {};
    for (int stage = 0; stage < 64; ++stage) {
      costs.forward.push_back(1 + stage * 0.00137);
      costs.input_grad.push_back(1.1 + stage * 0.00071);
      costs.weight_grad.push_back(0.9 + stage * 0.00093);
    }
    picture.timelines = {GeneratedTimeline(name, {64, 1, 256}),
                         GeneratedTimeline(name, {64, 1, 256}, costs)};
    const std::string html = ToHtml(picture);
    EXPECT_LE(html.size(), kMaxPageBytes);
    EXPECT_EQ(DataOf(html)["note"], Value("")) << html.size();
  }
}

TEST(ToHtml, GiantsLoseDetailAndSaySo) {
  Picture picture = SmallPicture();
  picture.timelines = {GeneratedTimeline("zb_h1", {256, 1, 1024})};
  for (Lane& lane : picture.timelines[0].lanes) {  // no duration or change of memory repeats
    for (size_t i = 0; i < lane.memory.size(); ++i) {
      lane.memory[i] += static_cast<int64_t>(i * i % 99'991);
    }
  }
  picture.layers.resize(kMostParts + 1, picture.layers[0]);
  const std::string html = ToHtml(picture);
  EXPECT_LE(html.size(), kMaxPageBytes);
  const Value data = DataOf(html);
  EXPECT_THAT(data["note"].as_string(), HasSubstr("only one of every"));
  EXPECT_TRUE(data["layers"].as_list().empty());
  EXPECT_EQ(data["layer_count"].as_int(), kMostParts + 1);
  const Value& timeline = data["timelines"].as_list()[0];
  EXPECT_EQ(timeline["lane_count"].as_int(), 256);
  EXPECT_EQ(timeline["lanes"].as_list().back()["rank"], Value(255));
}

TEST(ToHtml, AnEmptyPictureIsAPageToo) {
  EXPECT_TRUE(DataOf(ToHtml({}))["timelines"].as_list().empty());
}

}  // namespace
}  // namespace strata::picture
