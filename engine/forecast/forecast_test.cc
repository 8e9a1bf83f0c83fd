// Tests that forecasts, summaries, comparisons and advice agree with the simulator and the costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/text.h"
#include "engine/forecast/check_cost.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/summary.h"
#include "engine/layers/layer_types.h"
#include "engine/search/advice.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

LayerSpec Layer(const std::string& type, Value::List positional) {
  return MakeLayer(type, positional, {}, {}, "net.lua:1");
}

/// A job of `depth` Linear layers of one width, each followed by a ReLU.
Job Chain(int depth, int pipe, int64_t micro_batches = 4) {
  Job job;
  job.name = "chain";
  job.input = TensorSpec{{256}, DType::kFloat32};
  for (int i = 0; i < depth; ++i) {
    job.layers.push_back(Layer("Linear", {256, 256}));
    job.layers.push_back(Layer("ReLU", {}));
  }
  job.partition.method = "uniform";
  job.parallel.pipe = pipe;
  job.batch = {32 * micro_batches, micro_batches, 32};
  job.optimizer.type = "sgd";
  job.optimizer.options = Value::MakeMap({{"momentum", 0.9}});
  job.device = "cpu";
  return job;
}

/// Rates without latencies and without an optimizer step, so that the textbook formulas hold.
MachineRates Plain() { return {.name = "a plain machine", .device = {.flops = 1e9}}; }

Alternative Try(const Job& job, const MachineRates& rates = Plain()) {
  return TryJob(job, {}, rates, nullptr);
}

TEST(Forecast, OneStageNeverWaits) {
  const Alternative one = Try(Chain(4, 1));
  EXPECT_EQ(one.trouble, "");
  EXPECT_NEAR(one.forecast.simulation.bubble, 0, 1e-12);
  EXPECT_EQ(one.forecast.balance(), 1);
  EXPECT_NEAR(one.forecast.step(), 4 * one.forecast.StageSeconds(0), 1e-9);
}

TEST(Forecast, EqualStagesHaveTheBubbleOfTheFormula) {
  for (const int pipe : {2, 4}) {
    Job job = Chain(8, pipe, 8);
    // The first stage computes no gradient of its input; otherwise all forwards and backwards are
    // equal.
    const Alternative tried = Try(job);
    EXPECT_GT(tried.forecast.balance(), 0.85);
    EXPECT_NEAR(tried.forecast.simulation.bubble, (pipe - 1.0) / (8 + pipe - 1.0), 0.06) << pipe;
  }
}

TEST(Forecast, SaysItInTwoLines) {
  const Alternative tried = Try(Chain(4, 2));
  EXPECT_THAT(ForecastText(tried.forecast),
              AllOf(StartsWith("predicted: step "), HasSubstr("slowest stage 1"),
                    HasSubstr(",\n           memory of"), HasSubstr("on a plain machine")));
  EXPECT_EQ(ForecastValue(tried.forecast)["stages"].as_list().size(), 2u);
  EXPECT_EQ(MemoryValue(tried.forecast.memory).as_list().size(), 2u);
  EXPECT_THAT(MemoryText(tried.forecast.memory), StartsWith("rank  weights"));
}

TEST(Summary, AddsUpToWhatTheStagesDoAndKeep) {
  for (const int pipe : {1, 2, 3}) {
    const Alternative tried = Try(Chain(5, pipe));
    const std::vector<LayerSummary> layers = Summarize(tried.plan, tried.forecast.costs);
    for (const StagePlan& stage : tried.plan.stages) {
      const StageCost& cost = tried.forecast.stages[stage.stage];
      int64_t activations = 0, weights = 0;
      double flops = 0;
      for (int i = stage.begin; i < stage.end; ++i) {
        const LayerSummary& layer = layers[i];
        EXPECT_EQ(layer.stage, stage.stage);
        activations += layer.activation_bytes;
        weights += layer.weight_bytes;
        flops += layer.training_flops;
      }
      EXPECT_EQ(activations, cost.kept_bytes) << "stage " << stage.stage << " of " << pipe;
      EXPECT_EQ(weights, cost.weight_bytes);
      EXPECT_DOUBLE_EQ(flops, cost.forward.flops + cost.input_grad.flops + cost.weight_grad.flops);
    }
    EXPECT_GE(layers[0].flops, 2.0 * 32 * 256 * 256);
    EXPECT_LE(layers[0].flops, 2.1 * 32 * 256 * 256);
  }
}

TEST(Summary, ShowsLayersAndTotals) {
  const Alternative tried = Try(Chain(2, 2));
  const std::string text = SummaryText(tried.plan, tried.forecast.costs);
  EXPECT_THAT(text, AllOf(StartsWith("layer  type"), HasSubstr("(32, 256)"), HasSubstr("65,792"),
                          HasSubstr("\nall "), HasSubstr("131,584"),
                          HasSubstr("for one micro-batch of 32")));
  const Value value = SummaryValue(tried.plan, tried.forecast.costs);
  EXPECT_EQ(value["layers"].as_list().size(), 4u);
  EXPECT_EQ(value["parameters"].as_int(), 131584);
}

TEST(Summary, WritesFlopsInThreeDigits) {
  const std::pair<double, const char*> cases[] = {{0, "0"},
                                                  {1, "1 FLOP"},
                                                  {999, "999 FLOP"},
                                                  {1000, "1.00 kFLOP"},
                                                  {12345, "12.3 kFLOP"},
                                                  {999499, "999 kFLOP"},
                                                  {999500, "1.00 MFLOP"},
                                                  {1.406e9, "1.41 GFLOP"},
                                                  {3e21, "3000 EFLOP"}};
  for (const auto& [flops, text] : cases) EXPECT_EQ(FormatFlops(flops), text);
}

TEST(Compare, ShowsWhatWorksAndWhyTheRestDoesNot) {
  Job wrong = Chain(4, 2);
  wrong.partition.method = "unifrom";
  const std::vector<Alternative> both = {Try(Chain(4, 2)), Try(wrong)};
  EXPECT_THAT(CompareText(both),
              AllOf(HasSubstr("0,4,8"), HasSubstr("slowest stage"),
                    HasSubstr("unifrom, 2, 1f1b, 4: "), HasSubstr("did you mean \"uniform\"?")));
  const Value rows = CompareValue(both);
  EXPECT_GT(rows.as_list()[0]["step"].as_double(), 0);
  EXPECT_TRUE(rows.as_list()[1].Has("trouble"));
}

TEST(Advice, SharesAddUpToTheStep) {
  for (const Job& job : {Chain(4, 1), Chain(6, 3), WithCuts(Chain(6, 2), {0, 2, 12})}) {
    const Advice advice = Advise(Try(job, NominalRates("cpu")), {}, nullptr);
    double sum = advice.work;
    for (const Limit& limit : advice.limits) {
      EXPECT_GE(limit.share, 0.001);
      sum += limit.share;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_GT(advice.work, 0);
    EXPECT_TRUE(std::ranges::is_sorted(advice.limits, std::greater(), &Limit::share));
  }
}

TEST(Advice, FindsTheSlowestStageAndBetterCuts) {
  const Advice advice = Advise(Try(WithCuts(Chain(6, 2), {0, 2, 12})), {}, nullptr);
  ASSERT_FALSE(advice.limits.empty());
  EXPECT_EQ(advice.limits[0].what, "waiting for stage 1, the slowest");
  ASSERT_FALSE(advice.remedies.empty());
  EXPECT_THAT(advice.remedies[0].keys, HasSubstr("partition={0, "));
  EXPECT_THAT(AdviceText(advice),
              AllOf(HasSubstr("% computing"), HasSubstr("the cheapest first"), HasSubstr(" -> ")));
}

TEST(Advice, PromisesWhatThePlanThenHas) {
  const Job job = WithCuts(Chain(6, 2), {0, 2, 12});
  const Alternative now = Try(job);
  const Advice advice = Advise(now, {}, nullptr);
  EXPECT_LE(advice.remedies.size(), 3u);
  int price = 0;
  for (const Remedy& remedy : advice.remedies) {
    EXPECT_GE(remedy.gain, 0.01);
    const int paid = remedy.ranks > 2 ? 2 : remedy.memory > 1.02 * now.forecast.peak_memory();
    EXPECT_GE(paid, price) << "the cheapest come first";
    price = paid;
    // Only remedies that change nothing but cuts can be tried again from their keys.
    if (!remedy.keys.starts_with("partition={")) continue;
    std::vector<int> bounds;
    for (const std::string& bound : Split(remedy.keys.substr(11), ',')) {
      bounds.push_back(std::stoi(bound));
    }
    const Alternative tried = Try(WithCuts(job, bounds));
    EXPECT_DOUBLE_EQ(tried.forecast.step(), remedy.step);
    EXPECT_EQ(tried.forecast.peak_memory(), remedy.memory);
  }
}

TEST(CheckCost, SaysHowOftenAStepIsCheckedForAShareOfTheTime) {
  const Alternative tried = Try(Chain(8, 2));
  Job job = tried.job;
  job.check.every = 10;
  const CheckCost tenth = ForecastCheck(job, tried.plan, tried.forecast);
  EXPECT_EQ(tenth.every, 10);
  EXPECT_GT(tenth.seconds, tried.forecast.StageSeconds(0)) << "it repeats a micro-batch";
  EXPECT_DOUBLE_EQ(tenth.share, tenth.seconds / (tenth.seconds + 10 * tried.forecast.step()));
  for (const double share : {0.001, 0.02, 0.3}) {
    job.check = {.every = 0, .share = share};
    const CheckCost cost = ForecastCheck(job, tried.plan, tried.forecast);
    EXPECT_LE(cost.share, share);
    job.check = {.every = cost.every - 1, .share = 0};
    if (cost.every == 1) continue;
    EXPECT_GT(ForecastCheck(job, tried.plan, tried.forecast).share, share) << cost.every;
  }
}

TEST(Advice, SaysSoWhereNothingHelps) {
  Job job = Chain(1, 1, 1);
  job.layers.resize(1);
  MachineRates rates = Plain();
  // The time is that of reading the weights and does not depend on the number of samples.
  rates.device = {.memory = 1e9};
  job.batch = {1, 1, 1};
  const Advice advice = Advise(Try(job, rates), {}, nullptr);
  for (const Remedy& remedy : advice.remedies) EXPECT_GT(remedy.ranks, 1) << remedy.what;
}

}  // namespace
}  // namespace strata
