// Tests of the keys of records.
#include "engine/runtime/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strata {
namespace {

StepResult Result() {
  StepResult result;
  result.step = 4;
  result.loss = 0.1;
  result.grad_norm = 2.5;
  result.lr = 0.01;
  result.samples = 32;
  result.seconds = 0.5;
  result.data_seconds = 0.125;
  result.peak_memory = 1 << 20;
  return result;
}

// Programs that read the log rely on these keys.
TEST(StepRecordTest, HasItsKeys) {
  EXPECT_EQ(
      StepRecord(Result(), 0.2).ToJson(),
      R"({"step":4,"loss":0.1,"grad_norm":2.5,"lr":0.01,"samples":32,"seconds":0.5,)"
      R"("data_seconds":0.125,"samples_per_second":64.0,"peak_memory":1048576,"bubble":0.2})");
}

TEST(StepRecordTest, MicroBatchLossesWhereThereAreSome) {
  StepResult result = Result();
  result.micro_batch_losses = {0.5, 0.25};
  EXPECT_EQ(StepRecord(result, 0)["micro_batch_losses"].ToJson(), "[0.5,0.25]");
}

TEST(StepRecordTest, ALayersNormIsThatOfItsParameters) {
  StepResult result = Result();
  result.gradients = {{"0.weight", "", 3},
                      {"0.bias", "", 4},
                      {"2.attn.in_proj_weight", "", 0.5},
                      {"2.norm.bias", "", 1}};
  EXPECT_EQ(StepRecord(result)["grad_norms"].ToJson(), R"({"0":5.0,"2.attn":0.5,"2.norm":1.0})");
  EXPECT_FALSE(StepRecord(Result()).Has("grad_norms"));
}

TEST(HistogramsRecordsTest, HoldAThousandParametersEach) {
  StepResult result = Result();
  EXPECT_TRUE(HistogramsRecords(result).empty());
  result.histograms = Value::MakeMap({{"0.weight", Value::MakeMap({{"num", 3}})}});
  ASSERT_EQ(HistogramsRecords(result).size(), 1u);
  EXPECT_EQ(HistogramsRecords(result)[0].ToJson(),
            R"({"step":4,"histograms":{"0.weight":{"num":3}}})");
  Value::Map many;
  for (int i = 0; i < 2001; ++i) many.emplace_back(std::to_string(i), i);
  result.histograms = Value::MakeMap(many);
  const std::vector<Value> records = HistogramsRecords(result);
  ASSERT_EQ(records.size(), 3u);
  int next = 0;
  for (const Value& record : records) {
    for (const auto& [name, value] : record["histograms"].as_map()) {
      EXPECT_EQ(name, std::to_string(next));
      EXPECT_EQ(value.as_int(), next++);
    }
  }
  EXPECT_EQ(next, 2001);
}

TEST(StepRecordTest, PartsOfTheLossWhereThereAreSome) {
  StepResult result = Result();
  result.parts = {{"bce", 0.5}, {"dice", 0.25}};
  EXPECT_EQ(StepRecord(result, 0)["parts"].ToJson(), R"({"bce":0.5,"dice":0.25})");
  const EvalResult test = {.loss = 1, .samples = 2, .parts = {{"bce", 0.5}}};
  EXPECT_EQ(EvalRecord(1, test)["test_parts"].ToJson(), R"({"bce":0.5})");
}

TEST(StepRecordTest, LossesThatAreNotFiniteSurviveJson) {
  StepResult result = Result();
  result.loss = std::nan("");
  result.grad_norm = -std::numeric_limits<double>::infinity();
  result.seconds = 0;
  const Value record = Value::FromJson(StepRecord(result, 0).ToJson());
  EXPECT_TRUE(std::isnan(NumberOf(record["loss"])));
  EXPECT_EQ(NumberOf(record["grad_norm"]), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(NumberOf(record["samples_per_second"]), 0);
}

TEST(EvalRecordTest, HasItsKeys) {
  EXPECT_EQ(
      EvalRecord(200, {.loss = 0.25, .samples = 360, .metric = 0.975, .has_metric = true}).ToJson(),
      R"({"step":199,"test_loss":0.25,"test_samples":360,"accuracy":0.975})");
  EXPECT_FALSE(EvalRecord(1, {.loss = 0.25, .samples = 360}).Has("accuracy"));
}

TEST(DigestsTest, SurviveTheWay) {
  const std::vector<TensorDigest> digests = {{"0.weight", "00ff", 0.1}, {"0.bias", "12ab", 3}};
  const auto back = DigestsFrom(Value::FromJson(DigestsValue(digests).ToJson()));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].path, "0.weight");
  EXPECT_EQ(back[0].digest, "00ff");
  EXPECT_EQ(back[0].norm, 0.1);
  EXPECT_EQ(back[1].path, "0.bias");
}

TEST(DigestsTest, EveryNormSurvivesTheWay) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double norm : {0.0, -0.0, 0.1, 1.0, 1e300, 5e-324, 1.0 / 3, kInfinity, -kInfinity}) {
    const auto back = DigestsFrom(Value::FromJson(DigestsValue({{"a", "00", norm}}).ToJson()));
    ASSERT_EQ(back.size(), 1u);
    EXPECT_EQ(back[0].norm, norm);
    EXPECT_EQ(std::signbit(back[0].norm), std::signbit(norm));
  }
  const auto back =
      DigestsFrom(Value::FromJson(DigestsValue({{"a", "00", std::nan("")}}).ToJson()));
  EXPECT_TRUE(std::isnan(back[0].norm));
  EXPECT_TRUE(DigestsFrom(Value::FromJson(DigestsValue({}).ToJson())).empty());
}

TEST(RecutTextTest, SaysWhatMovedAndWhy) {
  RecutReport report;
  report.step = 40;
  report.moves = "layer 3 from rank 1 to rank 0";
  report.bytes = 1 << 20;
  report.seconds = 0.5;
  EXPECT_EQ(RecutText(report), "step 40: moved layer 3 from rank 1 to rank 0 (1.00 MiB in 500 ms)");
  report.moves = "";
  report.why = "rank 1 takes 2 times as long as at first";
  EXPECT_THAT(RecutText(report),
              testing::StartsWith("step 40: moved layers between stages of one rank, for rank 1"));
}

TEST(StepRecordTest, TheRateInATable) {
  struct Rate {
    int64_t samples;
    double seconds, rate;
  };
  for (const auto& [samples, seconds, rate] :
       {Rate{32, 0.5, 64}, Rate{0, 0.5, 0}, Rate{32, 0, 0}, Rate{32, -1, 0}, Rate{1, 4, 0.25}}) {
    StepResult result = Result();
    result.samples = samples;
    result.seconds = seconds;
    EXPECT_EQ(StepRecord(result, 0)["samples_per_second"], Value(rate))
        << samples << " " << seconds;
  }
}

}  // namespace
}  // namespace strata
