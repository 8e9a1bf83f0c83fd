#include "engine/forecast/planned_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_script.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/stage_map.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/schedule_testing.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct FakeScript : AnsweringScript {
  std::function<Value(const Value::List&)> function;

  Value Call(const FunctionRef&, const Value::List& arguments) override {
    return function(arguments);
  }
};

Job JobOf(const std::string& schedule, int pipe, int stages_per_rank, int micro_batches) {
  Job job;
  job.layers.assign(static_cast<size_t>(pipe) * stages_per_rank,
                    MakeLayer("Linear", {4, 4}, {}, {}, "net.lua:3"));
  job.input = TensorSpec{{4}, DType::kFloat32};
  job.parallel.pipe = pipe;
  job.optimizer.options.Set("momentum", 0.0);
  job.batch = {0, micro_batches, 2};
  job.schedule.name = schedule;
  job.stages_per_rank = stages_per_rank;
  return job;
}

/// A job whose schedule is the text of a CSV file.
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
  const auto golden = Golden("torch_pipelining");
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
    return ConfigErrorOf([&] { PlanJob(job, {}, nullptr); });
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

TEST(UsersSchedule, AnROfItsOwnRunsNoMaxNormAgain) {
  const auto error = [](const std::string& csv, const std::vector<Value>& recomputed = {}) {
    Job job = CsvJob(csv, 2, 3, 1);
    job.layers[0] = MakeLayer("Embedding", {10, 4}, {{"max_norm", 1}}, {}, "net.lua:3");
    job.input = TensorSpec{{5}, DType::kInt64};
    job.partition = {"cuts", {0, 2, 3}, {}};
    if (!recomputed.empty()) {
      job.recompute = {.method = RecomputeSpec::Method::kLayers,
                       .layers = LayerSelector{recomputed}};
    }
    return ConfigErrorOf([&] { PlanJob(job, {}, nullptr); });
  };
  EXPECT_EQ(error("0F0,0B0\n1F0,1R0,1B0\n"), "no error");
  EXPECT_THAT(error("0F0,0R0,0B0\n1F0,1B0\n"),
              HasSubstr("which is not done where a layer is recomputed"));
  EXPECT_EQ(error("0F0,0R0,0B0\n1F0,1B0\n", {Value(1)}), "no error") << "R runs layer 1 alone";
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
    return ConfigErrorOf([&] { PlanJob(job, {}, &script); });
  };
  EXPECT_THAT(error(7), AllOf(HasSubstr("net.lua:9"), HasSubstr("expected one of them, got")));
  EXPECT_THAT(error(Value::List{"0F0"}), HasSubstr("expected a row, got"));
  EXPECT_THAT(error(Value::List{Value::List{3}}), HasSubstr("expected an action, got"));
  EXPECT_THAT(error("0F0\n1F0,1B0\n"), HasSubstr("schedule of net.lua:9 for 2 ranks"));
}

/// The names of all generators except "inference", which cannot train.
std::vector<std::string> TrainingNames() {
  std::vector<std::string> names = schedule::GeneratorNames();
  std::erase(names, "inference");
  return names;
}

TEST(PlanJob, TakesTheSizesThatTheScheduleCanHaveAndNoOthers) {
  for (const std::string& name : TrainingNames()) {
    for (int ranks = 1; ranks < 4; ++ranks) {
      for (int stages_per_rank = 1; stages_per_rank < 4; ++stages_per_rank) {
        for (int micro_batches : {1, 2, 5, 6}) {
          const schedule::Sizes sizes{ranks, stages_per_rank, micro_batches};
          const Job job = JobOf(name, ranks, stages_per_rank, micro_batches);
          const std::string expected = ConfigErrorOf([&] { schedule::CheckSizes(name, sizes); });
          const std::string error = ConfigErrorOf([&] { ProgramOf(job); });
          EXPECT_EQ(error, expected) << name << " " << ranks << " " << stages_per_rank;
        }
      }
    }
  }
}

TEST(PlanJob, RefusesScheduleNamesThatNobodyHas) {
  EXPECT_THAT(ConfigErrorOf([] { PlanJob(JobOf("1f1", 2, 1, 4), {}, nullptr); }),
              HasSubstr("no schedule \"1f1\"; did you mean \"1f1b\"?"));
}

TEST(EvaluationProgram, RunsOnTheMapOfEverySchedule) {
  EXPECT_TRUE(rc::check([] {
    const auto name = *rc::gen::elementOf(schedule::testing::Names());
    const schedule::Sizes sizes = schedule::testing::AnySizes(name);
    const Job job = JobOf(name, sizes.ranks, sizes.stages_per_rank, sizes.micro_batches);
    const Plan plan = PlanJob(job, {}, nullptr);
    const int micro_batches = *rc::gen::inRange(1, 20);
    const schedule::Program program = EvaluationProgram(plan, micro_batches);
    RC_ASSERT(!program.is_training);
    RC_ASSERT(program.micro_batches == micro_batches);
    RC_ASSERT(program.stage_ranks == plan.stage_ranks());
    const schedule::Program lowered = LowerAndCheck(program);
    RC_ASSERT(Check(lowered, {.lowered = true}).Report() == "");
  }));
}

TEST(EvaluationProgram, RunsOnTheMapOfAUsersFile) {
  const Job job = CsvJob("1F0,2F0,2B0,1B0\n0F0,3F0,3B0,0B0\n", 2, 4, 1);
  const Plan plan = PlanJob(job, {}, nullptr);
  const schedule::Program program = EvaluationProgram(plan, 2);
  EXPECT_THAT(program.stage_ranks, ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(LowerAndCheck(program).ranks(), 2);
}

// The remaining actions keep their order; if an overlap action loses one part, the other part
// remains.
TEST(TrainingProgram, AShorterBatchLosesTheLastMicroBatchesOnly) {
  for (const std::string& name : TrainingNames()) {
    const schedule::Sizes sizes = schedule::testing::SizesFor(name, 3, 7);
    const Job job = JobOf(name, sizes.ranks, sizes.stages_per_rank, sizes.micro_batches);
    const Plan plan = PlanJob(job, {}, nullptr);
    const schedule::Program full = TrainingProgram(job, plan, sizes.micro_batches, nullptr);
    for (int fewer = 1; fewer < sizes.micro_batches; ++fewer) {
      const schedule::Program program = TrainingProgram(job, plan, fewer, nullptr);
      for (int r = 0; r < full.ranks(); ++r) {
        std::vector<std::string> left, expected;
        for (const schedule::Action& action : full.rows[r]) {
          for (const schedule::Action& part : schedule::ActionParts(action)) {
            const bool stays = part.kind != schedule::Kind::kIdle && part.micro_batch < fewer;
            if (stays) expected.push_back(ToText(part));
          }
        }
        for (const schedule::Action& action : program.rows[r]) {
          for (const schedule::Action& part : schedule::ActionParts(action)) {
            if (part.kind != schedule::Kind::kIdle) left.push_back(ToText(part));
          }
        }
        EXPECT_EQ(left, expected) << name << ", " << fewer << " of " << sizes.micro_batches;
      }
      EXPECT_EQ(ConfigErrorOf([&] { LowerAndCheck(program); }), "no error") << name;
    }
  }
}

TEST(UsersSchedule, AShorterBatchRunsTheFilesProgram) {
  const std::string csv = "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n";
  const Job job = CsvJob(csv, 2, 2, 3);
  const Plan plan = PlanJob(job, {}, nullptr);
  EXPECT_EQ(ToCsv(TrainingProgram(job, plan, 3, nullptr)), csv);
  EXPECT_EQ(ToCsv(TrainingProgram(job, plan, 2, nullptr)), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(ToCsv(TrainingProgram(job, plan, 1, nullptr)), "0F0,0B0\n1F0,1B0\n");
}

TEST(UsersSchedule, EveryNamedScheduleMayComeAsAFileOrFromAFunction) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = schedule::testing::AnyGenerated();
    if (name == "inference") return;
    schedule::Program program = Generate(name, sizes);
    Job job = CsvJob(ToCsv(program), sizes.ranks, program.stages(), sizes.micro_batches);
    program.name = "csv";
    RC_ASSERT(ProgramOf(job) == program);

    job.schedule.name = program.name = "function";
    FakeScript script;
    script.function = [&](const Value::List&) {
      Value::List rows;
      for (const auto& row : program.rows) {
        Value::List cells;
        for (const schedule::Action& action : row) cells.push_back(ToText(action));
        rows.push_back(std::move(cells));
      }
      return Value(std::move(rows));
    };
    RC_ASSERT(ProgramOf(job, &script) == program);
  }));
}

struct WrongFile {
  const char* csv;
  const char* error;
};

// Two ranks, two stages and two micro-batches, with every kind of error.
TEST(UsersSchedule, WrongFilesAreRefused) {
  const WrongFile cases[] = {
      {"0F0,0F1,0B0,0B1\n", "1 row for 2 ranks"},
      {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F0,2B0,2F1,2B1\n", "3 rows for 2 ranks"},
      {"0F0,0B0\n1F0,1B0\n", "0F1 is missing"},
      {"0F0,0F1,0B0,0B1\n1F0,1F1,1B1\n", "1B0 is missing"},
      {"0F0,0F1,0I0,0I1,0W0\n1F0,1B0,1F1,1B1\n", "0W1 is missing"},
      {"0F0,0F1\n1F0,1F1\n", "has no backwards"},
      {"0F0,0F1,0B0,0B1,0B1\n1F0,1B0,1F1,1B1\n", "0B1"},
      {"0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n", "0F2"},
      {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "rank 1"},
      {"0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n", "1B0"},
      {"0F0,0F1,0B0,1B1\n1F0,1B0,1F1,0B1\n", "rank 1 has no stage"},
      {"0F0,0F1,0B0,0Q1\n1F0,1B0,1F1,1B1\n", "row 0, column 3"},
  };
  for (const auto& [csv, expected] : cases) {
    const Job job = CsvJob(csv, 2, 2, 2);
    EXPECT_THAT(ConfigErrorOf([&] { PlanJob(job, {}, nullptr); }),
                AllOf(HasSubstr("schedule of the CSV file"), HasSubstr(expected)))
        << csv;
  }
}

TEST(UsersSchedule, AFunctionKeepsTheMapThatThePlanHas) {
  Job job = JobOf("function", 2, 1, 2);
  job.schedule.function = {1, "net.lua:9", "d"};
  FakeScript script;
  script.function = [](const Value::List& arguments) {
    const bool is_planned = Value(arguments[2]) == Value(2);
    return Value(is_planned ? "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
                            : "1F0,1B0,1F1,1B1,1F2,1B2\n0F0,0F1,0F2,0B0,0B1,0B2\n");
  };
  const Plan plan = PlanJob(job, {}, &script);
  EXPECT_EQ(TrainingProgram(job, plan, 1, &script).micro_batches, 1);
  EXPECT_THAT(ConfigErrorOf([&] { TrainingProgram(job, plan, 3, &script); }),
              AllOf(HasSubstr("schedule of net.lua:9 for 3 micro-batches"),
                    HasSubstr("stages on ranks 1, 0"), HasSubstr("for 2, on 0, 1")));
}

TEST(UsersSchedule, AFunctionNeedsAScript) {
  const Job job = JobOf("function", 2, 1, 2);
  EXPECT_THAT(ConfigErrorOf([&] { PlanJob(job, {}, nullptr); }), HasSubstr("there is no script"));
}

}  // namespace
}  // namespace strata
