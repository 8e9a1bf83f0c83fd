// Tests of laws that hold for every plan, and of its texts word for word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/plan_text.h"

namespace strata {
namespace {

/// A job of Linear layers of random widths, some of them frozen, with ReLUs between, and with any
/// number of stages that the layers can fill and any number of micro-batches.
Job AnyJob() {
  Job job;
  int width = *rc::gen::inRange(1, 50);
  job.input = TensorSpec{{width}, DType::kFloat32};
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 0; i < count; ++i) {
    if (*rc::gen::inRange(0, 3) == 0) {
      job.layers.push_back(Make("ReLU"));
      continue;
    }
    const int next = *rc::gen::inRange(1, 50);
    job.layers.push_back(Make("Linear", {width, next}));
    job.layers.back().frozen = *rc::gen::inRange(0, 4) == 0;
    width = next;
  }
  job.partition.method = *rc::gen::element<std::string>("parameters", "uniform");
  job.parallel.pipe = *rc::gen::inRange(1, count + 1);
  job.batch = {0, *rc::gen::inRange<int64_t>(1, 9), *rc::gen::inRange<int64_t>(1, 9)};
  job.device = "cpu";
  return job;
}

RC_GTEST_PROP(PlanLaws, StagesHoldAllLayersInOrder, ()) {
  const Job job = AnyJob();
  const Plan plan = MakePlan(job, {}, nullptr);
  RC_ASSERT(plan.pipe() == job.parallel.pipe);
  RC_ASSERT(plan.topology.world_size() == plan.pipe());
  int next = 0;
  for (int s = 0; s < plan.pipe(); ++s) {
    const StagePlan& stage = plan.stages[s];
    RC_ASSERT(stage.stage == s);
    RC_ASSERT(stage.rank == s);
    RC_ASSERT(stage.begin == next);
    RC_ASSERT(stage.end > stage.begin);
    RC_ASSERT(plan.bounds[s] == stage.begin);
    for (; next < stage.end; ++next) {
      RC_ASSERT(plan.layers[next].index == next);
      RC_ASSERT(plan.layers[next].stage == s);
    }
  }
  RC_ASSERT(next == static_cast<int>(job.layers.size()));
  RC_ASSERT(plan.bounds.back() == next);
}

RC_GTEST_PROP(PlanLaws, EveryParameterCountsOnce, ()) {
  const Job job = AnyJob();
  const Plan plan = MakePlan(job, {}, nullptr);
  int64_t learning = 0, all = 0, stages = 0, layers = 0;
  for (const LayerSpec& layer : job.layers) {
    all += CountParameters(layer);
    if (!layer.frozen) learning += CountParameters(layer);
  }
  for (const StagePlan& stage : plan.stages) stages += stage.parameters;
  for (const LayerPlan& layer : plan.layers) layers += layer.parameters + layer.frozen;
  RC_ASSERT(plan.parameters == learning);
  RC_ASSERT(stages == learning);
  RC_ASSERT(layers == all);
}

RC_GTEST_PROP(PlanLaws, AStageSendsWhatTheNextReceives, ()) {
  const Job job = AnyJob();
  const Plan plan = MakePlan(job, {}, nullptr);
  const int64_t rows = job.batch.micro_batch_size;
  const std::vector<TensorSpecs> shapes =
      InferLayers(job.layers, plan.stages.front().input, nullptr);
  RC_ASSERT(plan.stages.front().input ==
            TensorSpecs({{{rows, job.input->shape[0]}, DType::kFloat32}}));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    RC_ASSERT(stage.output == shapes[stage.end - 1]);
    RC_ASSERT(stage.output[0].shape[0] == rows);
    if (s > 0) RC_ASSERT(stage.input == plan.stages[s - 1].output);
  }
}

/// The numbers of stages and of micro-batches change neither the shapes per row nor the counts of
/// parameters.
RC_GTEST_PROP(PlanLaws, PlacingChangesNoLayer, ()) {
  const Job job = AnyJob();
  Job alone = job;
  alone.parallel.pipe = 1;
  alone.batch.micro_batches = 1;
  const Plan a = MakePlan(job, {}, nullptr), b = MakePlan(alone, {}, nullptr);
  RC_ASSERT(a.parameters == b.parameters);
  for (size_t i = 0; i < a.layers.size(); ++i) {
    RC_ASSERT(a.layers[i].output == b.layers[i].output);
    RC_ASSERT(a.layers[i].parameters == b.layers[i].parameters);
    RC_ASSERT(a.layers[i].path == b.layers[i].path);
  }
}

RC_GTEST_PROP(PlanLaws, ItsValueIsThePlan, ()) {
  const Plan plan = MakePlan(AnyJob(), {}, nullptr);
  const Value value = PlanValue(plan);
  RC_ASSERT(Value::FromJson(value.ToJson()) == value);
  RC_ASSERT(value["parameters"].as_int() == plan.parameters);
  RC_ASSERT(value["batch"]["size"].as_int() == plan.batch.size);
  const Value::List& stages = value["stages"].as_list();
  RC_ASSERT(stages.size() == plan.stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    RC_ASSERT(stages[s]["begin"].as_int() == plan.stages[s].begin);
    RC_ASSERT(stages[s]["parameters"].as_int() == plan.stages[s].parameters);
  }
  const std::string text = PlanText(plan);
  for (const LayerPlan& layer : plan.layers) {
    RC_ASSERT(text.find(FormatCount(layer.parameters)) != std::string::npos);
  }
}

TEST(PlanText, WordForWord) {
  Job job;
  job.layers = {Make("Embedding", {1000, 8}, {{"name", "embed"}}), Make("Linear", {8, 8}),
                Make("Dropout"), Make("Linear", {8, 1000, false})};
  job.layers[1].frozen = true;
  job.input = TensorSpec{{5}, DType::kInt64};
  job.partition.method = "cuts";
  job.partition.bounds = {0, 1, 4};
  job.parallel.pipe = 2;
  job.batch = {6, 3, 0};
  job.device = "cpu";
  EXPECT_EQ(PlanText(MakePlan(job, {}, nullptr)),
            "layer  type       parameters     output        stage\n"
            "embed  Embedding  8,000          (2, 5, 8)         0\n"
            "1      Linear     0 (72 frozen)  (2, 5, 8)         1\n"
            "2      Dropout    0              (2, 5, 8)         1\n"
            "3      Linear     8,000          (2, 5, 1000)      1\n"
            "\n"
            "stage  rank  layers  parameters  share  receives\n"
            "    0     0  0            8,000    50%  int64 (2, 5)\n"
            "    1     1  1 to 3       8,000    50%  (2, 5, 8)\n"
            "\n"
            "16,000 parameters; cuts 0, 1, 4; 3 micro-batches of 2\n");
}

TEST(PlanText, OfALayerWithoutParametersAndShapes) {
  Job job;
  job.layers = {Make("ReLU")};
  job.batch = {1, 1, 1};
  const std::string text = PlanText(MakePlan(job, {}, nullptr));
  EXPECT_THAT(text, testing::HasSubstr("0 parameters; cuts 0, 1; 1 micro-batch of 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("0%")) << "no share of nothing";
}

TEST(MakePlan, NeedsABatch) {
  Job job;
  job.layers = {Make("ReLU")};
  EXPECT_EQ(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }),
            "batch needs two of size, micro_batches and micro_batch_size: batch = {micro_batches = "
            "4, micro_batch_size = 8}");
}

}  // namespace
}  // namespace strata
