#include "engine/schedule/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::ElementsAre;

Program WithMap(std::vector<int> stage_ranks, int ranks) {
  Program program;
  program.stage_ranks = std::move(stage_ranks);
  program.rows.resize(ranks);
  return program;
}

// Each link as "F 0>1": direction, from, to.
std::vector<std::string> Texts(const Links& links) {
  std::vector<std::string> texts;
  for (int i = 0; i < links.size(); ++i) {
    const char* direction = links[i].direction == Direction::kForward ? "F" : "B";
    texts.push_back(Str(direction, " ", links[i].from, ">", links[i].to));
  }
  return texts;
}

TEST(Links, JoinNeighbours) {
  const Links links(WithMap(LoopMap(3, 1), 3));
  EXPECT_THAT(Texts(links), ElementsAre("F 0>1", "F 1>2", "B 1>0", "B 2>1"));
  EXPECT_EQ(links.Of(Direction::kForward, 0), -1);
  EXPECT_EQ(links.Of(Direction::kForward, 2), 1);
  EXPECT_EQ(links.Of(Direction::kBackward, 0), 2);
  EXPECT_EQ(links.Of(Direction::kBackward, 2), -1);
}

TEST(Links, OfALoopAreSharedByItsRounds) {
  const Links links(WithMap(LoopMap(2, 2), 2));
  EXPECT_THAT(Texts(links), ElementsAre("F 0>1", "F 1>0", "B 1>0", "B 0>1"));
  EXPECT_EQ(links.Of(Direction::kForward, 1), links.Of(Direction::kForward, 3));
}

TEST(Links, DoNotJoinARankWithItself) {
  const Links links(WithMap(VMap(2, 2), 2));
  EXPECT_THAT(Texts(links), ElementsAre("F 0>1", "F 1>0", "B 1>0", "B 0>1"));
  EXPECT_EQ(links.Of(Direction::kForward, 2), -1);
  EXPECT_EQ(links.Of(Direction::kBackward, 1), -1);
  EXPECT_EQ(Links(WithMap(LoopMap(1, 3), 1)).size(), 0);
}

TEST(Links, NoneBeyondTheEnds) {
  const Links links(WithMap(LoopMap(2, 1), 2));
  for (int stage : {-1, 2}) {
    EXPECT_EQ(links.Of(Direction::kForward, stage), -1);
    EXPECT_EQ(links.Of(Direction::kBackward, stage), -1);
  }
}

TEST(Messages, WhatAForwardReadsItsNeighbourGives) {
  const Action earlier = ParseAction("1F4"), later = ParseAction("2F4");
  EXPECT_EQ(ReadBy(later), GivenBy(earlier));
  EXPECT_EQ(ReadBy(later), (Message{Direction::kForward, 2, 4}));
}

TEST(Messages, WhatABackwardReadsItsNeighbourGives) {
  for (const char* reader : {"1B4", "1I4"}) {
    for (const char* giver : {"2B4", "2I4"}) {
      EXPECT_EQ(ReadBy(ParseAction(reader)), GivenBy(ParseAction(giver)));
    }
  }
}

TEST(Messages, SendAndReceiveMoveTheSame) {
  for (const char* text : {"2F4", "1B4", "1I4"}) {
    const Message message = ReadBy(ParseAction(text));
    EXPECT_EQ(MovedBy(SendOf(message)), message);
    EXPECT_EQ(MovedBy(RecvOf(message)), message);
  }
  EXPECT_EQ(ToText(SendOf(ReadBy(ParseAction("2F4")))), "1SEND_F4");
  EXPECT_EQ(ToText(RecvOf(ReadBy(ParseAction("2F4")))), "2RECV_F4");
  EXPECT_EQ(ToText(SendOf(ReadBy(ParseAction("1B4")))), "2SEND_B4");
  EXPECT_EQ(ToText(RecvOf(ReadBy(ParseAction("1I4")))), "1RECV_B4");
}

TEST(Messages, OnlyForwardsAndInputGradientsPassThem) {
  std::string passing;
  for (int kind = 0; kind <= static_cast<int>(Kind::kReshard); ++kind) {
    if (PassesMessages(static_cast<Kind>(kind))) passing += KindName(static_cast<Kind>(kind));
  }
  EXPECT_EQ(passing, "FIB");
}

}  // namespace
}  // namespace strata::schedule
