#include "engine/schedule/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata::schedule {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  return ConfigErrorOf([&] { ParseAction(text); });
}

TEST(Action, IsSmall) { EXPECT_EQ(sizeof(Action), 16u); }

TEST(Action, HasATextForm) {
  EXPECT_EQ(ToText(Action()), "");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kForward, 0)), "2F0");
  EXPECT_EQ(ToText(MakeAction(0, Kind::kInputGrad, 12)), "0I12");
  EXPECT_EQ(ToText(MakeAction(31, Kind::kWeightGrad, 4095)), "31W4095");
  EXPECT_EQ(ToText(MakeAction(1, Kind::kBackward, 3)), "1B3");
  EXPECT_EQ(ToText(MakeAction(1, Kind::kRecompute, 3)), "1R3");
  EXPECT_EQ(ToText(MakeAction(3, Kind::kSendF, 1)), "3SEND_F1");
  EXPECT_EQ(ToText(MakeAction(3, Kind::kRecvF, 1)), "3RECV_F1");
  EXPECT_EQ(ToText(MakeAction(3, Kind::kSendB, 1)), "3SEND_B1");
  EXPECT_EQ(ToText(MakeAction(3, Kind::kRecvB, 1)), "3RECV_B1");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kReduceTied)), "2REDUCE_TIED");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kReduceGrad)), "2REDUCE_GRAD");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kStep)), "2STEP");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kUnshard)), "2UNSHARD");
  EXPECT_EQ(ToText(MakeAction(2, Kind::kReshard)), "2RESHARD");
  EXPECT_EQ(
      ToText(MakeOverlap(MakeAction(0, Kind::kForward, 3), MakeAction(7, Kind::kBackward, 1))),
      "(0F3;7B1)OVERLAP_F_B");
  EXPECT_EQ(
      ToText(MakeOverlap(MakeAction(0, Kind::kForward, 3), MakeAction(7, Kind::kInputGrad, 1))),
      "(0F3;7I1)OVERLAP_F_B");
}

TEST(Action, ReadsWhiteSpace) {
  EXPECT_EQ(ParseAction("  2F0\t"), MakeAction(2, Kind::kForward, 0));
  EXPECT_EQ(ParseAction(" "), Action());
  EXPECT_EQ(ToText(ParseAction("( 0F3 ; 7B1 ) OVERLAP_F_B")), "(0F3;7B1)OVERLAP_F_B");
}

// A random action of any kind with any numbers.
Action AnyAction() {
  const auto number = [](int limit) { return *rc::gen::inRange(0, limit); };
  const auto kind = static_cast<Kind>(*rc::gen::inRange(0, static_cast<int>(Kind::kReshard) + 1));
  if (kind == Kind::kIdle) return {};
  if (kind == Kind::kOverlap) {
    const Kind backward = *rc::gen::element(Kind::kBackward, Kind::kInputGrad);
    return MakeOverlap(MakeAction(number(Action::kMaxStages), Kind::kForward, number(1 << 30)),
                       MakeAction(number(Action::kMaxStages), backward, number(1 << 30)));
  }
  return MakeAction(number(Action::kMaxStages), kind, HasMicroBatch(kind) ? number(1 << 30) : -1);
}

TEST(Action, RoundTripsThroughText) {
  EXPECT_TRUE(rc::check([] {
    const Action action = AnyAction();
    RC_ASSERT(ParseAction(ToText(action)) == action);
  }));
}

TEST(Action, AnyTextIsReadOrRefusedByConfigError) {
  EXPECT_TRUE(rc::check([] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("0123456789FIWBRSEND_RECVOVERLAP();  \t-+.,\"")));
    try {
      const Action action = ParseAction(text);
      RC_ASSERT(ParseAction(ToText(action)) == action);
    } catch (const ConfigError& error) {
      RC_ASSERT(std::string(error.what()).find("is not an action") != std::string::npos);
    }
  }));
}

TEST(Action, RefusalsNameTheTextAndTheFault) {
  EXPECT_THAT(ErrorOf("2X0"), AllOf(HasSubstr("\"2X0\" is not an action"),
                                    HasSubstr("no kind \"X\""), HasSubstr("such as 2F0")));
  EXPECT_THAT(ErrorOf("1SEND_G0"), HasSubstr("did you mean \"SEND_F\"?"));
  EXPECT_THAT(ErrorOf("1SENDF0"), HasSubstr("did you mean \"SEND_F\"?"));
  EXPECT_THAT(ErrorOf("F0"), HasSubstr("the stage is missing"));
  EXPECT_THAT(ErrorOf("3"), HasSubstr("the kind is missing"));
  EXPECT_THAT(ErrorOf("2F"), HasSubstr("the micro-batch is missing"));
  EXPECT_THAT(ErrorOf("2STEP1"), HasSubstr("STEP has no micro-batch"));
  EXPECT_THAT(ErrorOf("2F0x"), HasSubstr("\"x\" is too much"));
  EXPECT_THAT(ErrorOf("-1F0"), HasSubstr("the stage is missing"));
  EXPECT_THAT(ErrorOf("32767F0"), HasSubstr("the stage must be below 32,767"));
  EXPECT_THAT(ErrorOf("1F99999999999"), HasSubstr("the micro-batch must be below"));
  EXPECT_THAT(ErrorOf("2OVERLAP_F_B"), HasSubstr("stands behind its two actions"));
}

TEST(Action, RefusesWrongOverlaps) {
  EXPECT_THAT(ErrorOf("(0F3;7B1"), HasSubstr("\")\" is missing"));
  EXPECT_THAT(ErrorOf("(0F3;7B1)"), HasSubstr("the kind is missing"));
  EXPECT_THAT(ErrorOf("(0F3;7B1)F"), HasSubstr("only OVERLAP_F_B has parts"));
  EXPECT_THAT(ErrorOf("(0F3)OVERLAP_F_B"), HasSubstr("has two parts"));
  EXPECT_THAT(ErrorOf("(0F3;1F3;7B1)OVERLAP_F_B"), HasSubstr("has two parts"));
  EXPECT_THAT(ErrorOf("(0B3;7F1)OVERLAP_F_B"), HasSubstr("F, then B or I"));
  EXPECT_THAT(ErrorOf("(0F3;7W1)OVERLAP_F_B"), HasSubstr("F, then B or I"));
  EXPECT_THAT(ErrorOf("(0F3;)OVERLAP_F_B"), HasSubstr("the stage is missing"));
}

TEST(ActionParts, OfASimpleActionIsItself) {
  const Action action = ParseAction("2W5");
  EXPECT_EQ(Join(ActionParts(action), " "), "2W5");
  EXPECT_EQ(*ActionParts(action).begin(), action);
}

TEST(ActionParts, OfAnOverlapAreForwardAndBackward) {
  EXPECT_EQ(Join(ActionParts(ParseAction("(0F3;7I1)OVERLAP_F_B")), " "), "0F3 7I1");
}

TEST(Kind, Families) {
  std::string compute, communication, micro_batch;
  for (int i = 0; i <= static_cast<int>(Kind::kReshard); ++i) {
    const Kind kind = static_cast<Kind>(i);
    if (IsCompute(kind)) compute += Str(KindName(kind), " ");
    if (IsCommunication(kind)) communication += Str(KindName(kind), IsSend(kind) ? "! " : " ");
    if (HasMicroBatch(kind)) micro_batch += Str(KindName(kind), " ");
  }
  EXPECT_EQ(compute, "F I W B R OVERLAP_F_B ");
  EXPECT_EQ(communication, "SEND_F! RECV_F SEND_B! RECV_B ");
  EXPECT_EQ(micro_batch, "F I W B R SEND_F RECV_F SEND_B RECV_B ");
  EXPECT_TRUE(GivesInputGrad(Kind::kInputGrad) && GivesInputGrad(Kind::kBackward));
  EXPECT_FALSE(GivesInputGrad(Kind::kWeightGrad) || GivesInputGrad(Kind::kForward));
  EXPECT_TRUE(GivesWeightGrad(Kind::kWeightGrad) && GivesWeightGrad(Kind::kBackward));
  EXPECT_FALSE(GivesWeightGrad(Kind::kInputGrad) || GivesWeightGrad(Kind::kForward));
}

}  // namespace
}  // namespace strata::schedule
