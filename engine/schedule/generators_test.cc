#include "engine/schedule/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/schedule/testing/testing.h"

namespace strata::schedule {
namespace {

using ::testing::AllOf;
using testing::Drawn;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Golden;
using ::testing::HasSubstr;

TEST(GPipe, IsAsDrawn) {
  EXPECT_THAT(Drawn(Generate("gpipe", {.ranks = 3, .micro_batches = 4})),
              ElementsAre("F0 F1 F2 F3 . . . . B0 B1 B2 B3",  //
                          ". F0 F1 F2 F3 . . B0 B1 B2 B3 .",  //
                          ". . F0 F1 F2 F3 B0 B1 B2 B3 . ."));
}

TEST(OneFOneB, IsAsDrawn) {
  EXPECT_THAT(Drawn(Generate("1f1b", {.ranks = 3, .micro_batches = 4})),
              ElementsAre("F0 . F1 . F2 B0 F3 B1 . B2 . B3",  //
                          ". F0 . F1 B0 F2 B1 F3 B2 . B3 .",  //
                          ". . F0 B0 F1 B1 F2 B2 F3 B3 . ."));
}

TEST(Inference, IsAsDrawn) {
  const Program program = Generate("inference", {.ranks = 3, .micro_batches = 4});
  EXPECT_THAT(Drawn(program), ElementsAre("F0 F1 F2 F3 . .",  //
                                          ". F0 F1 F2 F3 .",  //
                                          ". . F0 F1 F2 F3"));
  EXPECT_FALSE(program.is_training);
}

// The case that the field notes give, computed from DeepSpeed's own formulas.
TEST(OneFOneB, OfFourStagesAndSixMicroBatches) {
  EXPECT_THAT(Drawn(Generate("1f1b", {.ranks = 4, .micro_batches = 6})),
              ElementsAre("F0 . F1 . F2 . F3 B0 F4 B1 F5 B2 . B3 . B4 . B5",
                          ". F0 . F1 . F2 B0 F3 B1 F4 B2 F5 B3 . B4 . B5 .",
                          ". . F0 . F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 . B5 . .",
                          ". . . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 . . ."));
}

TEST(Generate, FewerMicroBatchesThanRanks) {
  const Sizes sizes{.ranks = 4, .micro_batches = 2};
  EXPECT_THAT(Drawn(Generate("gpipe", sizes)),
              ElementsAre("F0 F1 . . . . . . B0 B1",  //
                          ". F0 F1 . . . . B0 B1 .",  //
                          ". . F0 F1 . . B0 B1 . .",  //
                          ". . . F0 F1 B0 B1 . . ."));
  EXPECT_THAT(Drawn(Generate("1f1b", sizes)),
              ElementsAre("F0 . F1 . . . . B0 . B1",  //
                          ". F0 . F1 . . B0 . B1 .",  //
                          ". . F0 . F1 B0 . B1 . .",  //
                          ". . . F0 B0 F1 B1 . . ."));
  EXPECT_THAT(Drawn(Generate("inference", sizes)),
              ElementsAre("F0 F1 . . .",  //
                          ". F0 F1 . .",  //
                          ". . F0 F1 .",  //
                          ". . . F0 F1"));
}

TEST(Generate, OneOfEach) {
  EXPECT_THAT(Drawn(Generate("gpipe", {})), ElementsAre("F0 B0"));
  EXPECT_THAT(Drawn(Generate("1f1b", {})), ElementsAre("F0 B0"));
  EXPECT_THAT(Drawn(Generate("inference", {})), ElementsAre("F0"));
  EXPECT_THAT(Drawn(Generate("1f1b", {.micro_batches = 3})), ElementsAre("F0 B0 F1 B1 F2 B2"));
  EXPECT_THAT(Drawn(Generate("gpipe", {.micro_batches = 3})), ElementsAre("F0 F1 F2 B0 B1 B2"));
}

TEST(Generate, GradientsAddUpInAscendingOrder) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 9), M = *rc::gen::inRange(1, 20);
    for (const char* name : {"gpipe", "1f1b"}) {
      for (const auto& row : Generate(name, {.ranks = P, .micro_batches = M}).rows) {
        int next = 0;
        for (const Action& action : row) {
          if (action.kind == Kind::kBackward) RC_ASSERT(action.micro_batch == next++);
        }
        RC_ASSERT(next == M);
      }
    }
  }));
}

TEST(Inference, RunsLoops) {
  const Program program =
      Generate("inference", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 3});
  EXPECT_THAT(Drawn(program, true), ElementsAre("0F0 0F1 2F0 2F1 0F2 . 2F2 .",  //
                                                ". 1F0 1F1 3F0 3F1 1F2 . 3F2"));
}

TEST(Inference, RunsVs) {
  EXPECT_THAT(Drawn(EvaluationProgram(VMap(2, 2), 3), true),
              ElementsAre("0F0 0F1 0F2 3F0 . 3F1 . 3F2",  //
                          ". 1F0 2F0 1F1 2F1 1F2 2F2 ."));
}

// step_to_micro_batch is a list of [id, is forward]; an id out of range is an idle step.
TEST(OneFOneB, IsDeepSpeedsTrainSchedule) {
  int cases = 0;
  const auto cases_of_deepspeed = Golden("deepspeed")["train_schedule"];
  for (const auto& golden : cases_of_deepspeed) {
    const int micro_batches = golden["micro_batches"], stages = golden["stages"];
    const Program program = Generate("1f1b", {.ranks = stages, .micro_batches = micro_batches});
    for (int s = 0; s < stages; ++s) {
      std::vector<Action> expected;
      for (const auto& step : golden["per_stage"][s]["step_to_micro_batch"]) {
        const int id = step[0];
        const Kind kind = step[1].get<bool>() ? Kind::kForward : Kind::kBackward;
        const bool is_idle = id < 0 || id >= micro_batches;
        expected.push_back(is_idle ? Action() : MakeAction(s, kind, id));
      }
      EXPECT_EQ(program.rows[s], expected) << stages << " stages, " << micro_batches;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 24);
}

// DeepSpeed's InferenceSchedule has one step more wherever it sends afterwards: compare the steps
// that compute.
TEST(Inference, IsDeepSpeedsInferenceSchedule) {
  int cases = 0;
  const auto cases_of_deepspeed = Golden("deepspeed")["inference_schedule"];
  for (const auto& golden : cases_of_deepspeed) {
    const int micro_batches = golden["micro_batches"], stages = golden["stages"];
    const Program program =
        Generate("inference", {.ranks = stages, .micro_batches = micro_batches});
    for (int s = 0; s < stages; ++s) {
      std::vector<Action> expected;
      int micro_batch = 0;
      for (const auto& step : golden["per_stage"][s]["steps"]) {
        const bool computes = step.dump().find("ForwardPass") != std::string::npos;
        expected.push_back(computes ? MakeAction(s, Kind::kForward, micro_batch++) : Action());
      }
      expected.resize(micro_batches + stages - 1);
      EXPECT_EQ(program.rows[s], expected) << stages << " stages, " << micro_batches;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 24);
}

TEST(Generate, AnySizes) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 9), M = *rc::gen::inRange(1, 20);
    for (const char* name : {"gpipe", "1f1b", "inference"}) {
      const Program program = Generate(name, {.ranks = P, .micro_batches = M});
      RC_ASSERT(program.name == name);
      RC_ASSERT(program.ranks() == P);
      RC_ASSERT(program.stage_ranks == LoopMap(P, 1));
      RC_ASSERT(program.micro_batches == M);
      const size_t steps = program.is_training ? 2 * (M + P - 1) : M + P - 1;
      for (const auto& row : program.rows) RC_ASSERT(row.size() == steps);
    }
  }));
}

TEST(Generate, RefusesNamesAndSizes) {
  const auto error = [](const char* name, Sizes sizes) {
    return ErrorOf([&] { Generate(name, sizes); });
  };
  EXPECT_THAT(error("gpip", {}), HasSubstr("no schedule \"gpip\"; did you mean \"gpipe\"?"));
  EXPECT_THAT(error("nonsense", {}), HasSubstr("it is one of gpipe, 1f1b, inference"));
  EXPECT_THAT(error("1f1b", {.ranks = 0}), HasSubstr("ranks must be at least 1, not 0"));
  EXPECT_THAT(error("1f1b", {.ranks = 2, .micro_batches = -1}),
              HasSubstr("micro_batches must be at least 1, not -1"));
  EXPECT_THAT(error("inference", {.stages_per_rank = 0}), HasSubstr("stages_per_rank"));
  EXPECT_THAT(error("1f1b", {.ranks = 2, .stages_per_rank = 2}),
              HasSubstr("\"1f1b\" has one stage per rank, not 2"));
  EXPECT_THAT(error("gpipe", {.ranks = 40000}), HasSubstr("40,000 stages are too many"));
  EXPECT_THAT(error("gpipe", {.ranks = 2000, .micro_batches = 2000000000}), HasSubstr("too large"));
}

TEST(Generate, NamesWhatComesLater) {
  for (const char* name : {"interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "interleaved_zb",
                           "zbv", "v_half", "v_min", "dualpipev", "auto"}) {
    EXPECT_THAT(ErrorOf([&] { Generate(name, {}); }),
                AllOf(HasSubstr("comes later"), HasSubstr("gpipe, 1f1b, inference")));
  }
}

TEST(Torch, ItsOrdersParse) {
  const auto golden = Golden("torch_pipelining");
  EXPECT_EQ(golden["schedules"].size(), 9u);
  for (const auto& entry : golden["schedules"]) {
    const Program program = testing::FromTorch(entry);
    EXPECT_EQ(program.stages(), program.ranks() * 2);
    // Without being told, the reader finds the same map and the same number of micro-batches.
    const Program found = ParseProgram(ToCsv(program), {.name = program.name});
    EXPECT_EQ(found, program) << program.name;
  }
}

}  // namespace
}  // namespace strata::schedule
