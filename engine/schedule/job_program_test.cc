#include "engine/schedule/job_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/plan/stage_map.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/testing.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

using schedule::testing::ErrorOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeScript : public Script {
 public:
  std::function<Value(const Value::List&)> function;

  Value Call(const FunctionRef&, const Value::List& arguments) override {
    return function(arguments);
  }
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs& inputs) override { return inputs; }
  TensorSpecs InferData(const FunctionRef&, int64_t) override { return {}; }
};

Job JobOf(const std::string& schedule, int pipe, int stages_per_rank, int micro_batches) {
  Job job;
  job.layers.assign(static_cast<size_t>(pipe) * stages_per_rank,
                    MakeLayer("Linear", {4, 4}, {}, {}, "net.lua:3"));
  job.input = TensorSpec{{4}, DType::kFloat32};
  job.parallel.pipe = pipe;
  job.batch = {0, micro_batches, 2};
  job.schedule.name = schedule;
  job.stages_per_rank = stages_per_rank;
  return job;
}

/// A job with a user's schedule from a file.
Job CsvJob(const std::string& csv, int pipe, int stages, int micro_batches) {
  Job job = JobOf("csv", pipe, 1, micro_batches);
  job.layers.resize(static_cast<size_t>(stages), job.layers[0]);
  job.schedule.source = csv;
  return job;
}

schedule::Program ProgramOf(const Job& job, Script* script = nullptr) {
  const Plan plan = PlanJob(job, {}, script);
  return TrainingProgram(job, plan, static_cast<int>(plan.batch.micro_batches), script);
}

TEST(PlanJob, HasTheMapOfEachSchedule) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = schedule::testing::AnyGenerated();
    const Job job = JobOf(name, sizes.ranks, sizes.stages_per_rank, sizes.micro_batches);
    const Plan plan = PlanJob(job, {}, nullptr);
    const schedule::Program program = Generate(name, sizes);
    RC_ASSERT(plan.stage_ranks() == program.stage_ranks);
    RC_ASSERT(TrainingProgram(job, plan, sizes.micro_batches, nullptr) == program);
    RC_ASSERT(EvaluationProgram(plan, 3).stage_ranks == program.stage_ranks);
  }));
}

TEST(PlanJob, TakesTheMapThatTheSearchChose) {
  const Job job = JobOf("auto", 3, 2, 7);
  const Plan plan = PlanJob(job, {}, nullptr);
  for (int micro_batches : {7, 2, 12}) {
    const schedule::Program program = TrainingProgram(job, plan, micro_batches, nullptr);
    EXPECT_EQ(program.stage_ranks, plan.stage_ranks());
    EXPECT_EQ(Check(program).Report(), "");
  }
}

TEST(TrainingProgram, AShorterBatchRunsThePlansProgram) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = schedule::testing::AnyGenerated();
    if (name == "inference") return;
    const Job job = JobOf(name, sizes.ranks, sizes.stages_per_rank, sizes.micro_batches);
    const Plan plan = PlanJob(job, {}, nullptr);
    const int fewer = *rc::gen::inRange(1, sizes.micro_batches + 1);
    const schedule::Program program = TrainingProgram(job, plan, fewer, nullptr);
    RC_ASSERT(program.micro_batches == fewer);
    RC_ASSERT(AccumulatesInOrder(program));
    LowerAndCheck(program);
  }));
}

TEST(UsersSchedule, AFileSaysWhereStagesAre) {
  const Job job = CsvJob("0F0,,,0B0\n,1F0,1B0,\n", 2, 2, 1);
  EXPECT_THAT(PlanJob(job, {}, nullptr).stage_ranks(), ElementsAre(0, 1));
  EXPECT_EQ(ProgramOf(job).name, "csv");
  const Job swapped = CsvJob("1F0,1B0\n0F0,0B0\n", 2, 2, 1);
  EXPECT_THAT(PlanJob(swapped, {}, nullptr).stage_ranks(), ElementsAre(1, 0));
  const Job v = CsvJob("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", 2, 4, 1);
  EXPECT_THAT(PlanJob(v, {}, nullptr).stage_ranks(), ElementsAre(0, 1, 1, 0));
}

TEST(UsersSchedule, TorchsFilesRun) {
  const auto golden = schedule::testing::Golden("torch_pipelining");
  for (const auto& entry : golden["schedules"]) {
    const schedule::Program theirs = schedule::testing::FromTorch(entry);
    const Job job = CsvJob(ToCsv(theirs), theirs.ranks(), theirs.stages(), theirs.micro_batches);
    schedule::Program ours = ProgramOf(job);
    ours.name = theirs.name;
    EXPECT_EQ(ours, theirs) << theirs.name;
  }
}

TEST(UsersSchedule, WhatIsWrongIsShownWithItsRow) {
  const auto error = [](const std::string& csv, int stages_per_rank = 1) {
    Job job = CsvJob(csv, 2, 2, 2);
    job.stages_per_rank = stages_per_rank;
    return ErrorOf([&] { PlanJob(job, {}, nullptr); });
  };
  EXPECT_EQ(error("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"), "no error");
  EXPECT_THAT(error("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"),
              AllOf(HasSubstr("schedule of the CSV file for 2 ranks and 2 micro-batches: "),
                    HasSubstr("0B1")));
  EXPECT_THAT(error("0F0,0F1,0B0,0X1\n1F0,1B0,1F1,1B1\n"),
              AllOf(HasSubstr("schedule of the CSV file: row 0, column 3"), HasSubstr("0X1")));
  EXPECT_THAT(error("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n1F0\n"), HasSubstr("3 rows for 2 ranks"));
  EXPECT_THAT(error("0F0,0F1\n1F0,1F1\n"), HasSubstr("has no backwards"));
  EXPECT_THAT(error("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 2),
              HasSubstr("has 2 stages, but pipe * stages_per_rank = 2 * 2"));
}

TEST(UsersSchedule, AFunctionReturnsTextOrRows) {
  Job job = JobOf("function", 2, 1, 1);
  job.schedule.function = {1, "net.lua:9", "d"};
  FakeScript script;
  script.function = [](const Value::List& arguments) {
    EXPECT_EQ(Value(arguments), Value(Value::List{2, 1, 1}));
    return Value("0F0,0B0\n1F0,1B0\n");
  };
  const schedule::Program program = ProgramOf(job, &script);
  EXPECT_EQ(ToCsv(program), "0F0,0B0\n1F0,1B0\n");
  script.function = [](const Value::List&) {
    return Value(Value::List{Value::List{"0F0", "", "0B0"}, Value::List{"1F0", "1B0"}});
  };
  EXPECT_EQ(ToCsv(ProgramOf(job, &script)), "0F0,,0B0\n1F0,1B0\n");

  const auto error = [&](Value returned) {
    script.function = [&](const Value::List&) { return returned; };
    return ErrorOf([&] { PlanJob(job, {}, &script); });
  };
  EXPECT_THAT(error(7), AllOf(HasSubstr("net.lua:9"), HasSubstr("expected one of them, got")));
  EXPECT_THAT(error(Value::List{"0F0"}), HasSubstr("expected a row, got"));
  EXPECT_THAT(error(Value::List{Value::List{3}}), HasSubstr("expected an action, got"));
  EXPECT_THAT(error("0F0\n1F0,1B0\n"), HasSubstr("schedule of net.lua:9 for 2 ranks"));
}

}  // namespace
}  // namespace strata
