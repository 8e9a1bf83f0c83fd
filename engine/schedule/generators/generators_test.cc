#include "engine/schedule/generators/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/schedule/checker.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::Drawn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Generate, GradientsAddUpInAscendingOrder) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    RC_ASSERT(AccumulatesInOrder(Generate(name, sizes)));
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

// step_to_micro_batch is a list of [id, is forward]. An id that is out of range is an idle step.
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

// DeepSpeed's InferenceSchedule has an additional step for the last send, so only steps that
// compute are compared.
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
    const auto [name, sizes] = testing::AnyGenerated();
    const Program program = Generate(name, sizes);
    RC_LOG() << ToGrid(program);
    RC_ASSERT(program.name == name);
    RC_ASSERT(program.ranks() == sizes.ranks);
    RC_ASSERT(program.stages() == sizes.ranks * sizes.stages_per_rank);
    RC_ASSERT(program.micro_batches == sizes.micro_batches);
    RC_ASSERT(program.is_training == (name != "inference"));
    RC_ASSERT(Check(program).Report() == "");
    for (const auto& row : program.rows) RC_ASSERT(row.size() == program.rows[0].size());
    const Program lowered = LowerAndCheck(program);
    RC_ASSERT(Simulate(lowered).makespan == Simulate(program).makespan);
  }));
}

// Each action stands in the time step in which it runs when every action takes one step.
TEST(Generate, DrawsIdleStepsWhereARankWaits) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    if (name == "gpipe" || name == "1f1b") return;  // drawn with idle steps of their own
    const Program program = Generate(name, sizes);
    RC_LOG() << ToGrid(program);
    const auto times = Simulate(program, {.backward = {1}, .overlap = {1}}).times;
    for (int r = 0; r < program.ranks(); ++r) {
      for (size_t i = 0; i < program.rows[r].size(); ++i) {
        const bool is_idle = program.rows[r][i].kind == Kind::kIdle;
        RC_ASSERT(is_idle || times[r][i].start == static_cast<double>(i));
      }
    }
  }));
}

TEST(Generate, FitsTellsBefore) {
  EXPECT_TRUE(rc::check([] {
    const auto name = *rc::gen::elementOf(GeneratorNames());
    const Sizes sizes{.ranks = *rc::gen::inRange(1, 5),
                      .stages_per_rank = *rc::gen::inRange(1, 4),
                      .micro_batches = *rc::gen::inRange(1, 12)};
    const std::string error = ConfigErrorOf([&] { Generate(name, sizes); });
    RC_ASSERT(Fits(name, sizes) == (error == "no error"));
  }));
}

TEST(StageMap, IsTheSchedules) {
  EXPECT_EQ(StageMap("1f1b", 4, 1), LoopMap(4, 1));
  EXPECT_EQ(StageMap("interleaved_zb", 3, 4), LoopMap(3, 4));
  for (const char* name : {"zbv", "v_half", "v_min", "dualpipev"}) {
    EXPECT_EQ(StageMap(name, 3, 2), VMap(3, 2)) << name;
  }
}

TEST(Generate, IsOnTheMapThatPlansAreMadeFor) {
  for (const std::string& name : testing::Names()) {
    const Sizes sizes = testing::SizesFor(name, 3, 6);
    EXPECT_EQ(Generate(name, sizes).stage_ranks, StageMap(name, 3, sizes.stages_per_rank)) << name;
  }
}

TEST(TriedSchedules, AreAllThatTrainAndHaveTurnsOfTheirOwn) {
  std::vector<int> turns;
  for (const std::string& name : TriedSchedules()) {
    EXPECT_TRUE(Generate(name, testing::SizesFor(name, 2, 4)).is_training) << name;
    turns.push_back(TurnOf(name));
  }
  EXPECT_EQ(turns.size() + 2, GeneratorNames().size()) << "all but auto and inference";
  std::sort(turns.begin(), turns.end());
  EXPECT_EQ(std::adjacent_find(turns.begin(), turns.end()), turns.end());
}

TEST(Generate, RefusesNamesAndSizes) {
  const auto error = [](const char* name, Sizes sizes) {
    return ConfigErrorOf([&] { Generate(name, sizes); });
  };
  EXPECT_THAT(error("gpip", {}), HasSubstr("no schedule \"gpip\"; did you mean \"gpipe\"?"));
  EXPECT_THAT(error("nonsense", {}), HasSubstr("no schedule \"nonsense\""));
  EXPECT_THAT(error("1f1b", {.ranks = 0}), HasSubstr("ranks must be at least 1, not 0"));
  EXPECT_THAT(error("1f1b", {.ranks = 2, .micro_batches = -1}),
              HasSubstr("micro_batches must be at least 1, not -1"));
  EXPECT_THAT(error("inference", {.stages_per_rank = 0}), HasSubstr("stages_per_rank"));
  EXPECT_THAT(error("1f1b", {.ranks = 2, .stages_per_rank = 2}),
              HasSubstr("\"1f1b\" has one stage per rank: stages_per_rank must be 1, not 2"));
  EXPECT_THAT(error("zbv", {.ranks = 2}),
              HasSubstr("\"zbv\" has two stages per rank: stages_per_rank must be 2, not 1"));
  EXPECT_THAT(error("dualpipev", {.ranks = 3, .stages_per_rank = 2, .micro_batches = 5}),
              HasSubstr("at least 2 micro-batches per rank, 6, to overlap"));
  EXPECT_THAT(error("gpipe", {.ranks = 40000}), HasSubstr("40,000 stages are too many"));
  EXPECT_THAT(error("gpipe", {.ranks = 2000, .micro_batches = 2000000000}), HasSubstr("too large"));
  EXPECT_THAT(error("gpipe", {.micro_batches = 1 << 24}),
              HasSubstr("1 stage and 16,777,216 micro-batches is too large; stages * (stages + "
                        "micro-batches) may be 16,777,216"));
}

TEST(CheckSizes, TakesAThousandRanks) {
  EXPECT_NO_THROW(
      CheckSizes("interleaved_1f1b", {.ranks = 1024, .stages_per_rank = 2, .micro_batches = 4096}));
}

TEST(CheckSizes, RefusesAsGenerateDoes) {
  const std::tuple<const char*, Sizes> cases[] = {{"gpipe", {.ranks = 3, .micro_batches = 5}},
                                                  {"gpip", {}},
                                                  {"auto", {}},
                                                  {"1f1b", {.ranks = 0}},
                                                  {"zbv", {.ranks = 2}},
                                                  {"gpipe", {.ranks = 40000}}};
  for (const auto& [name, sizes] : cases) {
    const auto check = [&, name = name, sizes = sizes] { CheckSizes(name, sizes); };
    const auto generate = [&, name = name, sizes = sizes] { Generate(name, sizes); };
    EXPECT_EQ(ConfigErrorOf(check), ConfigErrorOf(generate)) << name;
  }
}

TEST(Torch, ItsOrdersParse) {
  const auto golden = Golden("torch_pipelining");
  EXPECT_EQ(golden["schedules"].size(), 9u);
  for (const auto& entry : golden["schedules"]) {
    const Program program = testing::FromTorch(entry);
    EXPECT_EQ(program.stages(), program.ranks() * 2);
    // Without options the reader finds the same map and the same number of micro-batches.
    const Program found = ParseProgram(ToCsv(program), {.name = program.name});
    EXPECT_EQ(found, program) << program.name;
  }
}

}  // namespace
}  // namespace strata::schedule
