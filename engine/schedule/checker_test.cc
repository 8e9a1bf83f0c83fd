#include "engine/schedule/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/interpreter.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using Json = nlohmann::json;
using testing::FromRows;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RandomProgram;

std::string ReportOf(const std::vector<std::string>& rows, const CheckOptions& options = {},
                     const ParseOptions& parse = {}) {
  return Check(FromRows(rows, parse), options).Report();
}

// A correct lowered program of two stages and two micro-batches, which the tests break.
const std::vector<std::string> kRight = {
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP",
    "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"};

// The report of kRight with the row of `rank` replaced.
std::string ReportWith(int rank, const std::string& row, const CheckOptions& options = {}) {
  std::vector<std::string> rows = kRight;
  rows[rank] = row;
  return ReportOf(rows, options, {.stage_ranks = {0, 1}, .micro_batches = 2});
}

TEST(Check, AcceptsTheGeneratedPrograms) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    const Program program = Generate(name, sizes);
    const std::vector<int> tied = testing::AnyStages(program.stages());
    RC_ASSERT(Check(program).Report() == "");
    const CheckOptions options{.lowered = true, .tied_stages = tied};
    const auto result = Check(Lower(program, {.tied_stages = tied}), options);
    RC_ASSERT(result.Report() == "");
    RC_ASSERT(result.peak_activations == PeakActivations(program));
  }));
}

TEST(Check, AcceptsEvaluationOverAnyMap) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 6), v = *rc::gen::inRange(1, 4);
    const int M = *rc::gen::inRange(1, 10);
    for (const auto& map : {LoopMap(P, v), VMap(P, v)}) {
      const Program program = EvaluationProgram(map, M);
      RC_ASSERT(Check(program).Report() == "");
      RC_ASSERT(Check(Lower(program), {.lowered = true}).Report() == "");
    }
  }));
}

TEST(Check, AcceptsRecomputationAndNoOps) {
  EXPECT_EQ(ReportOf({"0UNSHARD 0F0 . 0F1 0R0 0I0 0W0 0R1 0B1 0RESHARD"}), "");
}

TEST(Check, AcceptsLargePrograms) {
  for (const std::string& name : GeneratorNames()) {
    const Program program = Generate(name, testing::SizesFor(name, 64, 100));
    EXPECT_EQ(Check(program).Report(), "") << name;
    EXPECT_EQ(Check(Lower(program), {.lowered = true}).Report(), "") << name;
  }
}

// In a cycle of 300 waiting ranks the explanation shows only some.
TEST(Check, ExplainsLongCircles) {
  const int ranks = 300;
  std::vector<std::string> rows = {Str("0F0 0B0 ", ranks, "F0 ", ranks, "B0")};
  for (int r = 1; r < ranks; ++r) rows.push_back(Str(r, "F0 ", r, "B0"));
  const CheckResult result = Check(FromRows(rows));
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_THAT(result.Report(), AllOf(HasSubstr("rank 0 at 0B0 waits until rank 1 comes to 1B0"),
                                     HasSubstr("and 292 ranks more")));
  EXPECT_LT(result.Report().size(), 2000u);
}

TEST(Check, GivesThePeak) {
  EXPECT_THAT(Check(FromRows({"0F0 0F1 0B0 0B1"})).peak_activations, ElementsAre(2));
  EXPECT_THAT(Check(FromRows({"0F0 0F1 0B0"})).peak_activations, IsEmpty());
}

TEST(Check, ShowsTheRow) {
  const auto result = Check(FromRows({"0F0 0B0 0F1 0B1", "1F0 1B0 1B1 1F1"}));
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_EQ(result.problems[0].rank, 1);
  EXPECT_EQ(result.problems[0].position, 2);
  EXPECT_EQ(result.problems[0].action, "1B1");
  EXPECT_EQ(result.problems[0].text,
            "rank 1, action 2: 1B1 comes before 1F1, which it needs\n  1F0 1B0 [1B1] 1F1");
  EXPECT_EQ(result.Report(), result.problems[0].text);
}

TEST(Check, StopsAfterManyProblems) {
  const auto result = Check(FromRows({"0F100 0B100"}));
  EXPECT_EQ(result.problems.size(), static_cast<size_t>(CheckResult::kMaxProblems));
}

TEST(CheckOrThrow, ThrowsTheReport) {
  EXPECT_EQ(ConfigErrorOf([] { CheckOrThrow(FromRows({"0F0 0B0"})); }), "no error");
  EXPECT_THAT(ConfigErrorOf([] { CheckOrThrow(FromRows({"0B0 0F0"}, {.name = "mine"})); }),
              AllOf(HasSubstr("program \"mine\" is wrong"), HasSubstr("0B0 comes before 0F0")));
}

// ---- Proof 1: places

TEST(CheckPlaces, RefusesWhatDoesNotExist) {
  EXPECT_THAT(ReportOf({"0F0 1F0"}, {}, {.stage_ranks = {0}}),
              HasSubstr("1F0 is of a stage that does not exist; there are 1 stage"));
  EXPECT_THAT(ReportOf({"0F0 0F1 0F2"}, {}, {.micro_batches = 2}),
              HasSubstr("0F2 is of a micro-batch that does not exist; there are 2"));
  EXPECT_THAT(ReportOf({"0STEP"}), HasSubstr("no micro-batches"));
}

TEST(CheckPlaces, RefusesTheWrongRow) {
  EXPECT_THAT(ReportOf({"0F0", "1F0 0F1"}, {}, {.micro_batches = 2}),
              HasSubstr("rank 1, action 1: 0F1 is in the wrong row; stage 0 is on rank 0"));
}

TEST(CheckPlaces, RefusesRanksAndMapsThatDoNotFit) {
  EXPECT_THAT(ReportOf({"0F0", "."}), HasSubstr("rank 1 has no stage"));
  Program program = FromRows({"0F0"});
  program.stage_ranks = {3};
  EXPECT_THAT(Check(program).Report(), HasSubstr("stage 0 is on rank 3 but the program has 1 row"));
  program.stage_ranks = {};
  EXPECT_THAT(Check(program).Report(), HasSubstr("has no stages"));
}

TEST(CheckPlaces, RefusesBackwardsInEvaluation) {
  Program program = FromRows({"0F0 0B0 0STEP"});
  program.is_training = false;
  EXPECT_THAT(Check(program).Report(),
              AllOf(HasSubstr("0B0 has no place in a program that only goes forward"),
                    HasSubstr("0STEP has no place")));
}

// ---- Proof 2: completeness

TEST(CheckCompleteness, MissesActions) {
  EXPECT_THAT(ReportOf({"0F0 0B0 0B1"}), HasSubstr("0B1 comes before 0F1"));
  EXPECT_THAT(ReportOf({"0F0 0B0"}, {}, {.micro_batches = 2}),
              AllOf(HasSubstr("0F1 is missing; see 0F0\n  [0F0] 0B0"),
                    HasSubstr("0B1 is missing; see 0B0\n  0F0 [0B0]")));
  EXPECT_THAT(ReportOf({"0F0 0I0"}), HasSubstr("0W0 is missing"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0F1"}), HasSubstr("0B1 is missing"));
}

TEST(CheckCompleteness, RefusesSecondRuns) {
  EXPECT_THAT(ReportOf({"0F0 0F0 0B0"}), HasSubstr("action 1: 0F0 runs a second time"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0B0"}), HasSubstr("0B0 runs a second time"));
  EXPECT_THAT(ReportOf({"0F0 0I0 0W0 0W0"}), HasSubstr("0W0 runs a second time"));
  EXPECT_THAT(ReportOf({"0F0 0I0 0W0 0B0"}), HasSubstr("0B0 goes backward a second time"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0I0"}), HasSubstr("0I0 goes backward a second time"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0W0"}), HasSubstr("0W0 comes before 0I0"));
  EXPECT_THAT(ReportOf({"0F0 0R0 0R0 0B0"}), HasSubstr("0R0 runs a second time"));
}

// ---- Proof 3: order in a row

TEST(CheckOrder, RefusesBackwardsBeforeForwards) {
  EXPECT_THAT(ReportOf({"0B0 0F0"}), HasSubstr("0B0 comes before 0F0, which it needs"));
  EXPECT_THAT(ReportOf({"0I0 0F0 0W0"}), HasSubstr("0I0 comes before 0F0"));
  EXPECT_THAT(ReportOf({"0F0 0W0 0I0"}), HasSubstr("0W0 comes before 0I0"));
  EXPECT_THAT(ReportOf({"0R0 0F0 0B0"}), HasSubstr("0R0 comes before 0F0"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0R0"}), HasSubstr("0R0 comes after the backward"));
}

TEST(CheckOrder, RefusesNeighboursOfARankInTheWrongOrder) {
  EXPECT_THAT(ReportOf({"1F0 0F0 1B0 0B0"}), HasSubstr("1F0 comes before 0F0, which it needs"));
  EXPECT_THAT(ReportOf({"0F0 1F0 0B0 1B0"}), HasSubstr("0B0 comes before 1B0 or I"));
  EXPECT_EQ(ReportOf({"0F0 1F0 1I0 0B0 1W0"}), "");
}

TEST(CheckOrder, SeesTheParts) {
  EXPECT_THAT(ReportOf({"0F0 (0F1;0B1)OVERLAP_F_B 0B0"}),
              HasSubstr("(0F1;0B1)OVERLAP_F_B (0B1) comes before 0F1, which it needs"));
  EXPECT_THAT(ReportOf({"0F0 (0F0;0B0)OVERLAP_F_B"}), HasSubstr("(0F0) runs a second time"));
  EXPECT_EQ(ReportOf({"0F0 (0F1;0B0)OVERLAP_F_B 0B1"}), "");
}

TEST(CheckOrder, NeedsMessages) {
  EXPECT_EQ(ReportOf(kRight, {.lowered = true}), "");
  EXPECT_THAT(
      ReportWith(1, "1F0 1RECV_F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"),
      HasSubstr("1F0 comes before 1RECV_F0, which it needs"));
  EXPECT_THAT(
      ReportWith(1, "1RECV_F0 1F0 1SEND_B0 1B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"),
      HasSubstr("1SEND_B0 comes before 1B0 or I, which it needs"));
  EXPECT_THAT(
      ReportWith(0, "0SEND_F0 0F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP"),
      HasSubstr("0SEND_F0 comes before 0F0, which it needs"));
  EXPECT_THAT(
      ReportWith(0, "0F0 0SEND_F0 0F1 0SEND_F1 0B0 0RECV_B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP"),
      HasSubstr("0B0 comes before 0RECV_B0, which it needs"));
}

TEST(CheckOrder, MissesMessages) {
  EXPECT_THAT(ReportWith(0, "0F0 0SEND_F0 0F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP"),
              HasSubstr("rank 0: 0SEND_F1 is missing; see 0SEND_F0"));
  EXPECT_THAT(ReportWith(1, "1RECV_F0 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"),
              HasSubstr("rank 1: 1RECV_F1 is missing"));
  EXPECT_THAT(ReportWith(1, "1RECV_F0 1F0 1B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"),
              HasSubstr("1SEND_B0 is missing"));
  EXPECT_THAT(ReportOf({"0F0", "1F0"}, {.lowered = true}),
              AllOf(HasSubstr("0SEND_F0 is missing"), HasSubstr("1F0 comes before 1RECV_F0")));
}

TEST(CheckOrder, RefusesMessagesWithoutAnotherEnd) {
  EXPECT_THAT(ReportOf({"0F0 0SEND_F0 1RECV_F0 1F0"}),
              AllOf(HasSubstr("0SEND_F0 moves nothing: stages 0 and 1 are on the same rank"),
                    HasSubstr("1RECV_F0 moves nothing")));
  EXPECT_THAT(ReportOf({"0RECV_F0 0F0 0SEND_F0", "1RECV_F0 1F0 1SEND_F0"}),
              AllOf(HasSubstr("0RECV_F0 has no stage at the other end"),
                    HasSubstr("1SEND_F0 has no stage at the other end")));
}

// ---- Proof 4: links

TEST(CheckLinks, RefusesSwappedSends) {
  EXPECT_THAT(
      ReportWith(0, "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP"),
      HasSubstr("rank 1, action 0: 1RECV_F0 is number 0 on its link, but there rank 0 sends "
                "0SEND_F1: 0F0 0F1 [0SEND_F1]"));
}

TEST(CheckLinks, RefusesSwappedReceives) {
  EXPECT_THAT(
      ReportWith(0, "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0RECV_B0 0B0 0B1 0REDUCE_GRAD 0STEP"),
      HasSubstr("rank 0, action 4: 0RECV_B1 is number 0 on its link, but there rank 1 sends "
                "1SEND_B0"));
}

TEST(CheckLinks, OfDifferentStagesAreOneWhenTheyJoinTheSameRanks) {
  // Stages 0 -> 1 and 2 -> 3 share the link from rank 0 to rank 1.
  const std::vector<std::string> rows = {
      "0F0 0SEND_F0 2RECV_F0 2F0 2SEND_F0 0F1 0SEND_F1 2RECV_F1 "
      "2F1 2SEND_F1",
      "1RECV_F0 1F0 1SEND_F0 3RECV_F0 3F0 1RECV_F1 1F1 1SEND_F1 "
      "3RECV_F1 3F1"};
  EXPECT_EQ(ReportOf(rows), "");
  EXPECT_THAT(
      ReportOf({rows[0], "1RECV_F0 1F0 1SEND_F0 1RECV_F1 3RECV_F0 3F0 1F1 1SEND_F1 3RECV_F1 3F1"}),
      HasSubstr("1RECV_F1 is number 1 on its link, but there rank 0 sends 2SEND_F0"));
}

// ---- Proof 5: progress

TEST(CheckProgress, RefusesSendsThatBlockEachOther) {
  // The classic mistake in 1F1B: both ranks send before they receive.
  EXPECT_EQ(ReportWith(1, "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1STEP"),
            "rank 0, action 3: 0SEND_F1 waits for ever; these ranks wait for each other\n"
            "  rank 0 at 0SEND_F1 waits until rank 1 comes to 1RECV_F1: "
            "0F0 0SEND_F0 0F1 [0SEND_F1] 0RECV_B0 0B0 0RECV_B1 0B1 ...\n"
            "  rank 1 at 1SEND_B0 waits until rank 0 comes to 0RECV_B0: "
            "1RECV_F0 1F0 1B0 [1SEND_B0] 1RECV_F1 1F1 1B1 1SEND_B1 ...");
}

TEST(CheckProgress, FindsCirclesOfActions) {
  const std::string report = ReportOf({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"});
  EXPECT_THAT(report, AllOf(HasSubstr("waits for ever; these ranks wait for each other"),
                            HasSubstr("rank 0 at 0B0 waits until rank 1 comes to 1B0 or I: 0F0 "
                                      "[0B0] 0F1 0B1"),
                            HasSubstr("rank 1 at 1F1 waits until rank 0 comes to 0F1: [1F1]")));
}

TEST(CheckProgress, FindsCirclesOfThree) {
  EXPECT_THAT(ReportOf({"0F0 0B0 3F0 3B0", "1F0 1B0", "2F0 2B0"}),
              AllOf(HasSubstr("rank 0 at 0B0 waits until rank 1 comes to 1B0 or I"),
                    HasSubstr("rank 1 at 1B0 waits until rank 2 comes to 2B0 or I"),
                    HasSubstr("rank 2 at 2B0 waits until rank 0 comes to 3B0 or I")));
}

TEST(CheckProgress, WaitsForBothPartsOfAnOverlap) {
  EXPECT_THAT(
      ReportOf({"0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1"}),
      AllOf(HasSubstr("rank 0 at (0F1;0B0)OVERLAP_F_B waits until rank 1 comes to 1B0 or I"),
            HasSubstr("rank 1 at 1F1 waits until rank 0 comes to 0F1")));
}

TEST(CheckProgress, LetsTiedReductionsMeet) {
  const std::string left = "0F0 0SEND_F0 2RECV_F0 2F0 2SEND_F0 2RECV_B0 2B0 2SEND_B0 0RECV_B0 0B0 ";
  const std::string right =
      "1RECV_F0 1F0 1SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 1RECV_B0 1B0 1SEND_B0 ";
  const std::string ends = "0REDUCE_TIED 2REDUCE_TIED 0REDUCE_GRAD 2REDUCE_GRAD 0STEP 2STEP";
  const CheckOptions options{.lowered = true, .tied_stages = {0, 1, 2, 3}};
  EXPECT_EQ(ReportOf({left + ends,
                      right + "1REDUCE_TIED 3REDUCE_TIED 1REDUCE_GRAD 3REDUCE_GRAD 1STEP 3STEP"},
                     options),
            "");
  // Stage 3 ends before stage 1 has gone backward: a rank that waits in this REDUCE_TIED waits for
  // rank 0, which waits for 1SEND_B0.
  EXPECT_THAT(ReportOf({left + ends,
                        "1RECV_F0 1F0 1SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 3REDUCE_TIED "
                        "1RECV_B0 1B0 1SEND_B0 1REDUCE_TIED 1REDUCE_GRAD 3REDUCE_GRAD "
                        "1STEP 3STEP"},
                       options),
              AllOf(HasSubstr("rank 1 at 1RECV_B0 waits until rank 0 comes to its REDUCE_TIED"),
                    HasSubstr("rank 0 at 2SEND_B0 waits until rank 1 comes to 1RECV_B0")));
}

// ---- Proof 6: buffers

TEST(CheckBuffers, RefusesOverwrites) {
  const Program program = FromRows({"0F0 0F1 0F2 0B0 0B1 0B2"});
  EXPECT_EQ(Check(program, {.stage_buffers = {3}}).Report(), "");
  EXPECT_THAT(Check(program, {.stage_buffers = {2}}).Report(),
              HasSubstr("action 2: 0F2 overwrites the input of micro-batch 0 in slot 0 of stage 0, "
                        "which is still needed; the stage has 2 slots"));
}

TEST(CheckBuffers, RefusesEarlyReceives) {
  EXPECT_THAT(
      ReportOf({"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2", "1RECV_F0 1RECV_F1 1RECV_F2 1F0 1F1 1F2"},
               {.stage_buffers = {2, 2}}),
      HasSubstr("1RECV_F2 overwrites the input of micro-batch 0"));
}

TEST(CheckBuffers, AcceptsWhatDeepSpeedHas) {
  for (int P : {1, 2, 4, 8}) {
    for (int M : {1, 3, 8}) {
      std::vector<int> buffers;
      for (int s = 0; s < P; ++s) buffers.push_back(std::max(2, std::min(P - s, M)));
      const Program program = Lower(Generate("1f1b", {.ranks = P, .micro_batches = M}));
      EXPECT_EQ(Check(program, {.lowered = true, .stage_buffers = buffers}).Report(), "");
    }
  }
}

// ---- Proof 7: ends

TEST(CheckEnds, MissesReductionsAndSteps) {
  EXPECT_THAT(ReportWith(0, "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0STEP"),
              HasSubstr("rank 0: 0REDUCE_GRAD is missing"));
  EXPECT_THAT(ReportWith(0, "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD"),
              HasSubstr("rank 0: 0STEP is missing"));
  EXPECT_THAT(ReportOf(kRight, {.tied_stages = {1}}), HasSubstr("rank 1: 1REDUCE_TIED is missing"));
  EXPECT_EQ(ReportOf({"0F0 0B0"}), "");
  EXPECT_THAT(ReportOf({"0F0 0B0"}, {.lowered = true}), HasSubstr("0STEP is missing"));
}

TEST(CheckEnds, RefusesThemBeforeTheLastW) {
  EXPECT_THAT(
      ReportWith(0, "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0REDUCE_GRAD 0B1 0STEP"),
      HasSubstr("0REDUCE_GRAD comes before the last W or B of its stage: 1 of 2 are done"));
  EXPECT_THAT(ReportOf({"0F0 0I0 0REDUCE_GRAD 0W0 0STEP"}),
              HasSubstr("0REDUCE_GRAD comes before the last W or B of its stage: 0 of 1"));
  EXPECT_THAT(ReportOf({"0F0 0I0 0STEP 0W0 0REDUCE_GRAD"}),
              AllOf(HasSubstr("0STEP comes before the last W or B"),
                    HasSubstr("0REDUCE_GRAD comes after 0STEP, which needs it")));
}

TEST(CheckEnds, RefusesTheWrongOrderAndSecondOnes) {
  EXPECT_THAT(ReportOf({"0F0 0B0 0REDUCE_GRAD 0REDUCE_TIED 0STEP"}),
              HasSubstr("0REDUCE_TIED comes after 0REDUCE_GRAD, which needs it"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0STEP 0REDUCE_GRAD"}),
              HasSubstr("0REDUCE_GRAD comes after 0STEP, which needs it"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0STEP 0STEP"}), HasSubstr("0STEP runs a second time"));
  EXPECT_THAT(ReportOf({"0F0 0B0 0REDUCE_GRAD 0REDUCE_GRAD"}),
              HasSubstr("0REDUCE_GRAD runs a second time"));
}

// ---- Comparison with the interpreter, the reference of what programs mean

// A small correct program, compute-only or lowered: a generated one, one of torch's, or a random
// one.
Program AnyRightProgram(bool is_lowered) {
  // Only torch's programs for 2 ranks: the others are too large to try every interleaving.
  static const std::vector<Program> torchs = [] {
    std::vector<Program> small;
    for (const auto& entry : Golden("torch_pipelining")["schedules"].get<std::vector<Json>>()) {
      if (entry["ranks"] == 2) small.push_back(testing::FromTorch(entry));
    }
    return small;
  }();
  const Program program = [] {
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        return *rc::gen::elementOf(torchs);
      case 1:
        return RandomProgram::Any({.ranks = 3, .stages = 4, .micro_batches = 2});
      default:
        return Generate(
            *rc::gen::element<std::string>("gpipe", "1f1b", "inference"),
            {.ranks = *rc::gen::inRange(1, 4), .micro_batches = *rc::gen::inRange(1, 4)});
    }
  }();
  return is_lowered ? AddCommunication(program) : program;
}

// Makes one random change: an action is dropped, doubled, moved within its row or to another row,
// or replaced.
void Mutate(Program& program) {
  auto& rows = program.rows;
  auto& row = rows[*rc::gen::inRange<size_t>(0, rows.size())];
  if (row.empty()) return;
  const auto any = [&] { return row.begin() + *rc::gen::inRange<size_t>(0, row.size()); };
  const auto at = any();
  switch (*rc::gen::inRange(0, 20)) {
    case 0:
      row.erase(at);
      return;
    case 1:
      row.insert(any(), Action(*at));
      return;
    case 2:
      std::iter_swap(at, any());
      return;
    case 3: {
      const Action moved = *at;
      row.erase(at);
      auto& other = rows[*rc::gen::inRange<size_t>(0, rows.size())];
      other.insert(other.begin() + *rc::gen::inRange<size_t>(0, other.size() + 1), moved);
      return;
    }
    case 4:
      if (at->micro_batch >= 0) at->micro_batch = *rc::gen::inRange(0, program.micro_batches + 1);
      return;
    case 5:
      if (at->stage >= 0) at->stage = int16_t(*rc::gen::inRange(0, program.stages() + 1));
      return;
    default:
      if (at + 1 != row.end()) std::iter_swap(at, at + 1);
  }
}

// Adds the reductions and steps that end a step, which the interpreter does not know.
Program Ended(const Program& program) {
  return HasCommunication(program) ? AddSteps(AddReductions(program, {})) : program;
}

// True if the programs differ in more than idle steps.
bool Differ(const Program& a, const Program& b) {
  const auto without_idle = [](Program program) {
    for (auto& row : program.rows) {
      std::erase_if(row, [](const Action& action) { return action.kind == Kind::kIdle; });
    }
    return program;
  };
  return without_idle(a) != without_idle(b);
}

TEST(CheckAgainstInterpreter, AgreesOnBrokenPrograms) {
  int broken = 0, right = 0;
  EXPECT_TRUE(rc::check([&] {
    const bool is_lowered = *rc::gen::arbitrary<bool>();
    const Program original = AnyRightProgram(is_lowered);
    RC_ASSERT(testing::Runs(original, HasCommunication(original)));
    Program program = original;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i) Mutate(program);
    // Without its communication a program would be another, compute-only one.
    RC_PRE(Differ(program, original) && HasCommunication(program) == HasCommunication(original));
    const bool runs = testing::Runs(program, HasCommunication(program));
    const CheckResult result = Check(Ended(program));
    RC_LOG() << ToCsv(program) << result.Report();
    RC_ASSERT(result.ok() == runs);
    ++(runs ? right : broken);
  }));
  EXPECT_GT(broken, 10);
  EXPECT_GT(right, 0);
}

TEST(CheckAgainstInterpreter, AgreesOnDeadlocks) {
  int deadlocks = 0, right = 0;
  EXPECT_TRUE(rc::check([&] {
    const bool is_lowered = *rc::gen::arbitrary<bool>();
    Program program = AnyRightProgram(is_lowered);
    // Swaps neighbours as long as each row stays correct by itself, so that only faults between
    // rows remain.
    const int swaps = *rc::gen::inRange(1, 30);
    for (int i = 0; i < swaps; ++i) {
      Program swapped = program;
      auto& row = swapped.rows[*rc::gen::inRange<size_t>(0, swapped.rows.size())];
      if (row.size() < 2) continue;
      const auto at = row.begin() + *rc::gen::inRange<size_t>(0, row.size() - 1);
      std::iter_swap(at, at + 1);
      const std::string report = Check(Ended(swapped)).Report();
      const bool is_right_by_row = report.empty() || report.find("wait for each other") < 200;
      if (is_right_by_row) program = swapped;
    }
    const bool runs = testing::Runs(program, HasCommunication(program));
    const CheckResult result = Check(Ended(program));
    RC_LOG() << ToCsv(program) << result.Report();
    RC_ASSERT(result.ok() == runs);
    ++(runs ? right : deadlocks);
  }));
  EXPECT_GT(deadlocks, 0);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace strata::schedule
