#include "engine/schedule/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "engine/schedule/checker.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::AllOf;
using testing::Drawn;
using ::testing::ElementsAre;
using testing::FromRows;
using ::testing::HasSubstr;

TEST(AddRecomputation, InFrontOfEachBackward) {
  const Program program =
      FromRows({"0F0 0F1 0B0 (0F2;0B1)OVERLAP_F_B 0R2 0I2 0W2", "1F0 1B0 1F1 1B1 1F2 1B2"});
  EXPECT_THAT(Drawn(AddRecomputation(program, {0}), true),
              ElementsAre("0F0 0F1 0R0 0B0 0R1 (0F2;0B1)OVERLAP_F_B 0R2 0I2 0W2",
                          "1F0 1B0 1F1 1B1 1F2 1B2"));
  EXPECT_EQ(AddRecomputation(program, {}), program);
  EXPECT_EQ(Check(AddRecomputation(program, {0, 1})).Report(), "");
}

TEST(AddCommunication, OfOneFOneB) {
  EXPECT_THAT(
      Drawn(AddCommunication(Generate("1f1b", {.ranks = 3, .micro_batches = 3}))),
      ElementsAre("F0 SEND_F0 F1 SEND_F1 F2 RECV_B0 SEND_F2 B0 RECV_B1 B1 RECV_B2 B2",
                  "RECV_F0 F0 SEND_F0 RECV_F1 F1 RECV_B0 SEND_F1 B0 SEND_B0 RECV_F2 F2 RECV_B1 "
                  "SEND_F2 B1 SEND_B1 RECV_B2 B2 SEND_B2",
                  "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1 B1 SEND_B1 RECV_F2 F2 B2 SEND_B2"));
}

TEST(AddCommunication, OfGPipe) {
  EXPECT_THAT(Drawn(AddCommunication(Generate("gpipe", {.ranks = 3, .micro_batches = 2}))),
              ElementsAre("F0 SEND_F0 F1 SEND_F1 RECV_B0 B0 RECV_B1 B1",
                          "RECV_F0 F0 SEND_F0 RECV_F1 F1 SEND_F1 RECV_B0 B0 SEND_B0 RECV_B1 B1 "
                          "SEND_B1",
                          "RECV_F0 F0 RECV_F1 F1 B0 SEND_B0 B1 SEND_B1"));
}

TEST(AddCommunication, OfInference) {
  EXPECT_THAT(Drawn(AddCommunication(Generate("inference", {.ranks = 3, .micro_batches = 2}))),
              ElementsAre("F0 SEND_F0 F1 SEND_F1",                  //
                          "RECV_F0 F0 SEND_F0 RECV_F1 F1 SEND_F1",  //
                          "RECV_F0 F0 RECV_F1 F1"));
}

TEST(AddCommunication, NothingMovesWithinARank) {
  EXPECT_THAT(Drawn(AddCommunication(FromRows({"0F0 3F0 3B0 . 0B0", ". 1F0 2F0 2B0 1B0"})), true),
              ElementsAre("0F0 0SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 0RECV_B0 0B0",
                          "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 1B0 1SEND_B0"));
}

TEST(AddCommunication, OfAnEvaluationOverAV) {
  EXPECT_THAT(
      Drawn(AddCommunication(EvaluationProgram(VMap(2, 2), 3)), true),
      ElementsAre("0F0 0SEND_F0 0F1 0SEND_F1 0F2 3RECV_F0 0SEND_F2 3F0 3RECV_F1 3F1 3RECV_F2 3F2",
                  "1RECV_F0 1F0 2F0 1RECV_F1 2SEND_F0 1F1 2F1 1RECV_F2 2SEND_F1 1F2 2F2 2SEND_F2"));
}

TEST(AddCommunication, OfOneRankIsNothing) {
  const Program program = Generate("1f1b", {.micro_batches = 2});
  EXPECT_EQ(AddCommunication(program), program);
}

TEST(AddCommunication, SurroundsOverlaps) {
  const Program program = FromRows({"0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2",  //
                                    "1F0 1B0 1F1 1B1 1F2 1B2"});
  EXPECT_EQ(Drawn(AddCommunication(program).rows[0]),
            "F0 SEND_F0 F1 RECV_B0 SEND_F1 (0F2;0B0)OVERLAP_F_B RECV_B1 SEND_F2 B1 RECV_B2 B2");
}

// The receiver reads in another order than the sender gives. The messages go in the sender's order.
TEST(AddCommunication, ReceivesInTheOrderOfTheLink) {
  EXPECT_THAT(Drawn(AddCommunication(FromRows({"0F0 0F1 0F2", "1F2 1F1 1F0"}))),
              ElementsAre("F0 SEND_F0 F1 SEND_F1 F2 SEND_F2", "RECV_F0 RECV_F1 RECV_F2 F2 F1 F0"));
}

// 3F0 needs 1F0 -> 2F0 -> 3F0 and runs before 1F1 reads the second micro-batch, which rank 0 gives
// before it runs 2F0. If rank 1 took that message only before 1F1, rank 0 would wait in its send
// for ever.
TEST(AddCommunication, ReceivesEarlyWhereAllWouldWait) {
  const Program program = FromRows({"0F0 0F1 2F0 2F1", "1F0 3F0 1F1 3F1"});
  const Program lowered = AddCommunication(program);
  EXPECT_THAT(Drawn(lowered, true),
              ElementsAre("0F0 0SEND_F0 0F1 2RECV_F0 0SEND_F1 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1",
                          "1RECV_F0 1F0 1SEND_F0 1RECV_F1 3RECV_F0 3F0 1F1 1SEND_F1 3RECV_F1 3F1"));
  EXPECT_TRUE(Check(lowered).ok());
}

TEST(AddCommunication, KeepsWhatIsThere) {
  const Program program = FromRows({"0F0 . 0SEND_F0", ". 1RECV_F0 1F0"});
  EXPECT_EQ(ToCsv(AddCommunication(program)), "0F0,0SEND_F0\n1RECV_F0,1F0\n");
  const Program lowered = Lower(Generate("1f1b", {.ranks = 3, .micro_batches = 4}), {{0, 2}});
  EXPECT_EQ(Lower(lowered, {{0, 2}}), lowered);
}

TEST(AddCommunication, ExplainsWhatCannotBeLowered) {
  const auto error = [](const std::vector<std::string>& rows, const ParseOptions& options = {}) {
    return ConfigErrorOf([&] { AddCommunication(FromRows(rows, options)); });
  };
  EXPECT_THAT(error({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"}),
              AllOf(HasSubstr("program \"user\" is wrong"), HasSubstr("wait for each other")));
  EXPECT_THAT(error({"0F0 0F1", "1F0"}), HasSubstr("1F1 is missing"));
  EXPECT_THAT(error({"0F0", "1F0 1F1"}), HasSubstr("0F1 is missing"));
  EXPECT_THAT(error({"0F0 7F0"}, {.stage_ranks = {0}}), HasSubstr("stage that does not exist"));
}

TEST(AddCommunication, LeavesOtherMistakesToTheChecker) {
  const Program lowered = AddCommunication(FromRows({"0F0 0F0 0B0", "1F0 1B0"}));
  EXPECT_THAT(Check(lowered).Report(), HasSubstr("0F0 runs a second time"));
}

// The number of compute actions in `row` between the communication at `at` and its own action,
// which is before a SEND and after a RECV.
int Distance(const std::vector<Action>& row, size_t at) {
  const Action& communication = row[at];
  const bool is_forward = communication.kind == Kind::kSendF || communication.kind == Kind::kRecvF;
  const int step = IsSend(communication.kind) ? -1 : 1;
  int distance = 0;
  for (size_t i = at + step; i < row.size(); i += step) {
    for (const Action& part : ActionParts(row[i])) {
      const bool is_its_kind = is_forward ? part.kind == Kind::kForward : GivesInputGrad(part.kind);
      if (is_its_kind && part.stage == communication.stage &&
          part.micro_batch == communication.micro_batch) {
        return distance;
      }
    }
    distance += IsCompute(row[i].kind);
  }
  return -1;
}

struct Distances {
  int late_sends = 0;
  int early_receives = 0;
};

Distances DistancesOf(const Program& program) {
  Distances distances;
  for (const auto& row : program.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (!IsCommunication(row[i].kind)) continue;
      const bool is_away = Distance(row, i) != 0;
      (IsSend(row[i].kind) ? distances.late_sends : distances.early_receives) += is_away;
    }
  }
  return distances;
}

// With one stage per rank every receive is in the gap before its reader. With several, some must be
// earlier.
TEST(AddCommunication, StaysInTheGapsOfTheGeneratedPrograms) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 9), M = *rc::gen::inRange(1, 20);
    for (const char* name : {"gpipe", "1f1b", "inference"}) {
      const Program program = Generate(name, {.ranks = P, .micro_batches = M});
      const Program lowered = AddCommunication(program);
      const Distances distances = DistancesOf(lowered);
      RC_ASSERT(distances.late_sends == 0);
      RC_ASSERT(distances.early_receives == 0);
      RC_ASSERT(StageBuffers(lowered) == StageBuffers(program));
      RC_ASSERT(PeakActivations(lowered) == PeakActivations(program));
    }
  }));
}

// Early receives occur in schedules with several stages per rank. The programs have 48 to 240
// messages; these numbers show when a change makes more of them early.
TEST(AddCommunication, ReceivesFewMessagesEarlyInTorchsOrders) {
  const auto golden = Golden("torch_pipelining")["schedules"];
  std::vector<int> early;
  for (const auto& entry : golden) {
    const Distances distances = DistancesOf(AddCommunication(testing::FromTorch(entry)));
    EXPECT_EQ(distances.late_sends, 0);
    early.push_back(distances.early_receives);
  }
  EXPECT_THAT(early, ElementsAre(8, 4, 8, 7, 17, 4, 24, 1, 3));
}

TEST(AddReductions, FollowTheLastWAndItsSend) {
  const Program program = AddCommunication(FromRows({"0F0 2F0 2B0 0B0", "1F0 1I0 1W0"}));
  EXPECT_THAT(Drawn(AddReductions(program, {}), true),
              ElementsAre("0F0 0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD 0RECV_B0 0B0 "
                          "0REDUCE_GRAD",
                          "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1I0 1SEND_B0 1W0 1REDUCE_GRAD"));
}

TEST(AddReductions, FollowAnOverlap) {
  EXPECT_EQ(ToCsv(AddReductions(FromRows({"0F0 1F0 (0F1;1B0)OVERLAP_F_B 0B0"}), {1})),
            "0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,0REDUCE_GRAD,1REDUCE_TIED,1REDUCE_GRAD\n");
}

TEST(AddReductions, OfTiedStagesEndTheRow) {
  const Program program = FromRows({"0F0 1F0 2F0 2B0 1B0 0B0"});
  EXPECT_EQ(ToCsv(AddReductions(program, {0, 2})),
            "0F0,1F0,2F0,2B0,1B0,1REDUCE_GRAD,0B0,0REDUCE_TIED,2REDUCE_TIED,0REDUCE_GRAD,"
            "2REDUCE_GRAD\n");
}

TEST(AddReductions, KeepAndMoveWhatIsThere) {
  const Program program = FromRows({"0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD 0STEP 1STEP"});
  EXPECT_EQ(AddReductions(program, {}), program);
  EXPECT_EQ(ToCsv(AddReductions(program, {1})),
            "0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_TIED,1REDUCE_GRAD,0STEP,1STEP\n");
  const Program tied = FromRows({"0F0 0B0 0REDUCE_TIED"});
  EXPECT_EQ(ToCsv(AddReductions(tied, {0})), "0F0,0B0,0REDUCE_TIED,0REDUCE_GRAD\n");
}

TEST(AddReductions, LeaveEvaluationAlone) {
  const Program program = Generate("inference", {.ranks = 2, .micro_batches = 2});
  EXPECT_EQ(AddReductions(program, {0, 1}), program);
  EXPECT_EQ(AddSteps(program), program);
}

TEST(AddSteps, EndTheRow) {
  EXPECT_EQ(ToCsv(AddSteps(FromRows({"0F0 2F0 2B0 0B0", "1F0 1B0"}))),
            "0F0,2F0,2B0,0B0,0STEP,2STEP\n1F0,1B0,1STEP\n");
  EXPECT_EQ(ToCsv(AddSteps(FromRows({"0F0 1F0 1B0 1STEP 0B0"}))), "0F0,1F0,1B0,1STEP,0B0,0STEP\n");
}

TEST(Lower, OfOneFOneBWithTies) {
  EXPECT_THAT(
      Drawn(Lower(Generate("1f1b", {.ranks = 2, .micro_batches = 2}), {{0, 1}})),
      ElementsAre("F0 SEND_F0 F1 RECV_B0 SEND_F1 B0 RECV_B1 B1 REDUCE_TIED REDUCE_GRAD STEP",
                  "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1 B1 SEND_B1 REDUCE_TIED REDUCE_GRAD "
                  "STEP"));
}

// DeepSpeed's names of Strata's kinds.
const std::map<std::string, Kind> kInstructions = {
    {"RecvActivation", Kind::kRecvF},       {"ForwardPass", Kind::kForward},
    {"SendActivation", Kind::kSendF},       {"RecvGrad", Kind::kRecvB},
    {"BackwardPass", Kind::kBackward},      {"SendGrad", Kind::kSendB},
    {"ReduceTiedGrads", Kind::kReduceTied}, {"ReduceGrads", Kind::kReduceGrad},
    {"OptimizerStep", Kind::kStep},
};

// The slots that the actions of each kind use, in order; -1 for an action without a micro-batch.
using SlotsByKind = std::map<Kind, std::vector<int>>;

SlotsByKind SlotsOf(const nlohmann::json& steps) {
  SlotsByKind slots;
  for (const auto& step : steps) {
    for (const auto& instruction : step) {
      const auto kind = kInstructions.find(instruction[0]);
      if (kind == kInstructions.end()) continue;  // LoadMicroBatch
      slots[kind->second].push_back(instruction.size() > 1 ? instruction[1].get<int>() : -1);
    }
  }
  return slots;
}

SlotsByKind SlotsOf(const std::vector<Action>& row, int buffers) {
  SlotsByKind slots;
  for (const Action& action : row) {
    const int m = action.micro_batch;
    slots[action.kind].push_back(m < 0 ? -1 : m % buffers);
  }
  return slots;
}

// Expects the same instructions with the same buffers. Only the places of sends and receives
// between computations may differ.
void ExpectDeepSpeedsInstructions(const char* name, const char* golden_name) {
  const auto golden = Golden("deepspeed")[golden_name];
  EXPECT_EQ(golden.size(), 7u);
  for (const auto& entry : golden) {
    const Sizes sizes{.ranks = entry["stages"], .micro_batches = entry["micro_batches"]};
    std::vector<int> tied(sizes.ranks);
    std::iota(tied.begin(), tied.end(), 0);
    const Program lowered = Lower(Generate(name, sizes), {.tied_stages = tied});
    for (int s = 0; s < sizes.ranks; ++s) {
      EXPECT_EQ(SlotsOf(lowered.rows[s], StageBuffers(lowered)[s]),
                SlotsOf(entry["per_stage"][s]["steps"]))
          << sizes.ranks << " stages, stage " << s << ", " << sizes.micro_batches;
    }
  }
}

TEST(Lower, OneFOneBHasDeepSpeedsInstructions) {
  ExpectDeepSpeedsInstructions("1f1b", "train_schedule");
}

TEST(Lower, InferenceHasDeepSpeedsInstructions) {
  ExpectDeepSpeedsInstructions("inference", "inference_schedule");
}

TEST(LowerAndCheck, GivesWhatMayRun) {
  const Program program = Generate("1f1b", {.ranks = 3, .micro_batches = 4});
  EXPECT_EQ(LowerAndCheck(program, {{0, 2}}), Lower(program, {{0, 2}}));
}

TEST(LowerAndCheck, ShowsTheCallersRows) {
  EXPECT_THAT(ConfigErrorOf([] { LowerAndCheck(FromRows({"0F0 . 0B1 0F1 0B0"})); }),
              HasSubstr("rank 0, action 2: 0B1 comes before 0F1, which it needs\n"
                        "  0F0 . [0B1] 0F1 0B0"));
  EXPECT_THAT(ConfigErrorOf([] {
                LowerAndCheck(FromRows({"0F0 0SEND_F0 0B0 0RECV_B0",  //
                                        "1RECV_F0 1F0 1B0 1SEND_B0"}));
              }),
              HasSubstr("0B0 comes before 0RECV_B0"));
}

TEST(Lower, ProgramsThatTorchLowered) {
  const auto golden = Golden("torch_pipelining")["schedules"];
  for (const char* name :
       {"ScheduleLoopedBFS", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
        "ScheduleZBVZeroBubble", "ScheduleDualPipeV"}) {
    std::ifstream file(Str("engine/schedule/testdata/", name, ".csv"), std::ios::binary);
    const std::string csv((std::istreambuf_iterator<char>(file)), {});
    const Program program = ParseProgram(csv, {.name = name});
    EXPECT_TRUE(HasCommunication(program));
    EXPECT_THAT(Check(program).Report(), HasSubstr("STEP is missing"));
    EXPECT_EQ(Check(Lower(program), {.lowered = true}).Report(), "") << name;
    // torch lowered the program that the golden file has.
    for (const auto& entry : golden) {
      if (entry["schedule"] != name || entry["ranks"] != 2) continue;
      EXPECT_EQ(Simulate(program).makespan, Simulate(testing::FromTorch(entry)).makespan) << name;
    }
  }
}

}  // namespace
}  // namespace strata::schedule
