// Tests of a plan as text and as JSON.
#include "launcher/report/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_script.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

LayerSpec Layer(const std::string& type, Value::List positional, Value::Map named = {}) {
  return MakeLayer(type, positional, named, {}, "");
}

Job TinyJob() {
  Job job;
  job.name = "tiny";
  job.input = TensorSpec{{64}, DType::kFloat32};
  job.layers = {Layer("Linear", {64, 32}), Layer("ReLU", {}), Layer("Linear", {32, 10})};
  job.parallel.pipe = 2;
  job.batch = {32, 4, 8};
  job.optimizer.options = Value::MakeMap({{"momentum", 0.9}});
  job.device = "cpu";
  return job;
}

/// The job of models/alexnet.lua, DeepSpeed's example.
Job AlexnetJob() {
  Job job = TinyJob();
  job.name = "alexnet";
  job.input = TensorSpec{{3, 224, 224}, DType::kFloat32};
  const LayerSpec relu = Layer("ReLU", {});
  const LayerSpec pool = Layer("MaxPool2d", {3}, {{"stride", 2}});
  job.layers = {Layer("Conv2d", {3, 64}, {{"kernel_size", 11}, {"stride", 4}, {"padding", 2}}),
                relu,
                pool,
                Layer("Conv2d", {64, 192}, {{"kernel_size", 5}, {"padding", 2}}),
                relu,
                pool,
                Layer("Conv2d", {192, 384}, {{"kernel_size", 3}, {"padding", 1}}),
                relu,
                Layer("Conv2d", {384, 256}, {{"kernel_size", 3}, {"padding", 1}}),
                relu,
                Layer("Conv2d", {256, 256}, {{"kernel_size", 3}, {"padding", 1}}),
                relu,
                pool,
                Layer("AdaptiveAvgPool2d", {Value::List{6, 6}}),
                Layer("Flatten", {}),
                Layer("Dropout", {}),
                Layer("Linear", {9216, 4096}),
                relu,
                Layer("Dropout", {}),
                Layer("Linear", {4096, 4096}),
                relu,
                Layer("Linear", {4096, 10})};
  return job;
}

struct Planned {
  explicit Planned(Job j)
      : job(std::move(j)),
        plan(MakePlan(job, {}, nullptr)),
        forecast(ForecastPlan(job, plan, nullptr)) {}
  Job job;
  Plan plan;
  Forecast forecast;
};

TEST(PredictTest, TheBubbleOf1F1B) {
  const Planned planned(TinyJob());
  EXPECT_DOUBLE_EQ(planned.forecast.outlook.simulation.bubble, 1.0 / 5);  // (P-1) / (M+P-1)
  EXPECT_EQ(planned.forecast.step.program.name, "1f1b");
}

TEST(PredictTest, AScheduleThatIsWrongIsRefused) {
  Job job = TinyJob();
  job.schedule = {"csv", "0F0,0B0\n1B0,1F0\n", {}};
  EXPECT_NE(ConfigErrorOf([&] { Planned planned(job); }), "no error");
  job.schedule = {"1f1c", "", {}};
  EXPECT_THAT(ConfigErrorOf([&] { Planned planned(job); }), HasSubstr("1f1b"));
}

TEST(PlanReportTest, ShowsWhatACheckedStepCosts) {
  Job job = AlexnetJob();
  EXPECT_EQ(PlanRecord(job, Planned(job).plan, Planned(job).forecast)["check"], Value());
  job.check = {.every = 0, .share = 0.02};
  const Planned planned(job);
  const Value check = PlanRecord(job, planned.plan, planned.forecast)["check"];
  EXPECT_THAT(PlanReport(job, planned.plan, planned.forecast, false),
              HasSubstr(Str("check: a checked step takes ",
                            FormatSeconds(check["seconds"].as_double()), " longer and ")));
  EXPECT_THAT(
      PlanSummary(job, planned.plan, planned.forecast),
      HasSubstr(Str(" more on a rank; every ", check["every"].as_int(), " steps, that is ")));
  EXPECT_THAT(PlanSummary(job, planned.plan, planned.forecast), Not(HasSubstr("hang_timeout")));
  job.hang_timeout = check["seconds"].as_double() / 2;
  EXPECT_THAT(PlanSummary(job, planned.plan, planned.forecast), HasSubstr("note: hang_timeout = "));
}

TEST(PlanReportTest, ShowsParametersAndCutsOfAlexnet) {
  const Planned planned(AlexnetJob());
  const std::string text = PlanReport(planned.job, planned.plan, planned.forecast, false);
  EXPECT_THAT(text, AllOf(HasSubstr("alexnet: 22 layers, 57,044,810 parameters, batch 32 = 4 "
                                    "micro-batches of 8\n"),
                          HasSubstr("parameters per layer: 23296,0,0,307392,0,0,663936,0,884992,0,"
                                    "590080,0,0,0,0,0,37752832,0,0,16781312,0,40970\n"),
                          HasSubstr("cuts: 0,19,22\n"),
                          HasSubstr("schedule 1f1b, predicted bubble 20.0% (no schedule has less "
                                    "than 4.0%; forward"),
                          HasSubstr("pipe 2 x data 1 x model 1 = 2 ranks on cpu, over gloo\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("1.12 GFLOP"), HasSubstr("\nrank  weights"),
                          HasSubstr("\npredicted: step ")));
}

TEST(PlanReportTest, ShowsTheSchedule) {
  const Planned planned(TinyJob());
  const std::string text = PlanReport(planned.job, planned.plan, planned.forecast, false);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 |"), HasSubstr("rank 1 |"), Not(HasSubstr("\033["))));
  EXPECT_THAT(PlanReport(planned.job, planned.plan, planned.forecast, true), HasSubstr("\033["));
}

TEST(PlanReportTest, TellsOfTheCopyThatASaveBesideTheTrainingTakes) {
  Job job = TinyJob();
  const auto report = [&job] {
    const Planned planned(job);
    return PlanReport(job, planned.plan, planned.forecast, false);
  };
  job.save.dir = "runs";
  EXPECT_THAT(report(), Not(HasSubstr("a copy"))) << "the last one has the training wait";
  job.save.every = 10;
  const RankMemory first = Planned(job).forecast.step.memory.at(0);  // rank 0 has more memory
  EXPECT_THAT(report(), HasSubstr("a copy of weights and optimizer, up to " +
                                  ShowBytes(first.weights + first.optimizer) + " more on a rank"));
}

TEST(PlanReportTest, ASaveHasNoCopiesInHalfPrecision) {
  const auto told = [](DType compute, bool is_frozen) {
    Job job = TinyJob();
    job.save.dir = "runs";
    job.save.every = 10;
    job.precision.compute = compute;
    job.layers[0].frozen = is_frozen;
    const Planned planned(job);
    const std::string text = PlanReport(job, planned.plan, planned.forecast, false);
    return text.substr(text.find("a save beside"), 100);
  };
  EXPECT_EQ(told(DType::kBFloat16, false), told(DType::kFloat32, false));
  EXPECT_EQ(told(DType::kBFloat16, true), told(DType::kFloat32, true));
}

// Other programs rely on these keys.
TEST(PlanRecordTest, IsTheGoldenOne) {
  const Planned planned(TinyJob());
  std::ifstream file("launcher/testdata/tiny_plan.json");
  const std::string golden(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(PlanRecord(planned.job, planned.plan, planned.forecast).ToJson(2) + "\n", golden);
}

TEST(PlanSummaryTest, IsShort) {
  const Planned planned(TinyJob());
  EXPECT_EQ(PlanSummary(planned.job, planned.plan, planned.forecast),
            "tiny: 3 layers, 2,410 parameters, batch 32 = 4 micro-batches of 8\n"
            "pipe 2 x data 1 x model 1 = 2 ranks on cpu, over gloo; cuts 0,2,3; schedule 1f1b");
}

TEST(PlanSummaryTest, ShowsNotices) {
  Planned planned(TinyJob());
  planned.plan.notices = {"no GPU here"};
  EXPECT_THAT(PlanSummary(planned.job, planned.plan, planned.forecast),
              HasSubstr("\nnote: no GPU here"));
}

/// A script whose layers are tried for the first time when the step is forecast.
struct NotingScript : AnsweringScript {
  std::vector<std::string> TakeNotes() override { return {"net.lua:3 needs values"}; }
};

TEST(PlanSummaryTest, ShowsWhatTheForecastFoundToo) {
  Planned planned(TinyJob());
  planned.plan.notices = {"no GPU here"};
  NotingScript script;
  planned.forecast = ForecastPlan(planned.job, planned.plan, &script);
  const auto both = HasSubstr("note: no GPU here\nnote: net.lua:3 needs values");
  EXPECT_THAT(PlanSummary(planned.job, planned.plan, planned.forecast), both);
  EXPECT_THAT(PlanReport(planned.job, planned.plan, planned.forecast, /*color=*/false), both);
}

}  // namespace
}  // namespace strata::launcher
