#include "engine/runtime/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using testing::MapOf;

constexpr int kSamples = 24;

/// Scores of three classes, and labels; the fourth label is not counted.
Tensors Scores(int from, int count) {
  return {at::arange(3 * from, 3 * (from + count), at::kDouble).mul(1.7).sin().view({count, 3})};
}
Tensors Labels(int from, int count) {
  at::Tensor labels = at::arange(from, from + count).mul(5).add(1).remainder(7).remainder(3);
  return {labels.masked_fill(at::arange(from, from + count).eq(3), -100)};
}
/// Two numbers per sample, and targets near them.
Tensors Numbers(int from, int count) {
  return {at::arange(2 * from, 2 * (from + count), at::kDouble).mul(0.7).sin().view({count, 2})};
}
Tensors Targets(int from, int count) { return {Numbers(from, count)[0].mul(1.25).add(0.1)}; }

using Make = Tensors (*)(int, int);

Job Asked(const char* loss, std::vector<std::string> names) {
  const Value metrics = Value::List(names.begin(), names.end());
  return testing::MakeJob({testing::Make("Linear", {2, 2})}, testing::Make(loss),
                          {{"eval", MapOf({{"metrics", metrics}})}});
}

/// The metrics that `replicas` replicas compute over all samples, in micro-batches of `rows`.
Value Of(const Job& job, Make outputs, Make targets, int rows, int replicas) {
  auto ends = MakeThreadTransports(replicas, {});
  Value result;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < replicas; ++rank) {
    ranks.emplace_back([&, rank] {
      testing::FakeScript script;
      Metrics metrics(job, job.loss, script);
      const int own = kSamples / replicas;
      metrics.BeginRun(rank * own);
      for (int m = 0; m * rows < own; ++m) {
        const int from = rank * own + m * rows, count = std::min(rows, own - m * rows);
        metrics.Read(m, outputs(from, count), targets(from, count));
      }
      const Value own_result = metrics.Take(std::log(2.0), true, *ends[rank]);
      if (rank == 0) result = own_result;
    });
  }
  ranks.clear();
  return result;
}

TEST(Metrics, OfClassesAreThoseOfAllSamples) {
  const Job job = Asked("CrossEntropyLoss", {"accuracy", "top5", "f1", "confusion", "perplexity"});
  const Value one = Of(job, Scores, Labels, kSamples, 1);
  const at::Tensor best = Scores(0, kSamples)[0].argmax(1), labels = Labels(0, kSamples)[0];
  double right = 0, f1 = 0;
  for (int c = 0; c < 3; ++c) {
    const at::Tensor counted = labels.ne(-100);
    const auto count = [](const at::Tensor& mask) { return mask.sum().item<double>(); };
    const double both = count(labels.eq(c).logical_and(best.eq(c)));
    f1 += 2 * both / (count(labels.eq(c)) + count(best.eq(c).logical_and(counted))) / 3;
    right += both;
    EXPECT_EQ(one["confusion"].as_list()[c].as_list()[c].as_double(), both);
  }
  EXPECT_DOUBLE_EQ(one["accuracy"].as_double(), right / (kSamples - 1));
  EXPECT_DOUBLE_EQ(one["f1"].as_double(), f1);
  EXPECT_EQ(one["top5"].as_double(), 1) << "of three classes";
  EXPECT_DOUBLE_EQ(one["perplexity"].as_double(), 2);
  for (const int rows : {1, 5, 12}) {
    for (const int replicas : {1, 2, 3}) {
      EXPECT_EQ(Of(job, Scores, Labels, rows, replicas), one) << rows << " " << replicas;
    }
  }
}

TEST(Metrics, ALabelWithoutAClassIsRefused) {
  testing::FakeScript script;
  for (const char* metric : {"confusion", "f1", "top5"}) {
    const Job job = Asked("CrossEntropyLoss", {metric});
    Metrics metrics(job, job.loss, script);
    metrics.BeginRun(0);
    for (const int wrong : {3, -1}) {
      const Tensors labels = {Labels(0, 4)[0].fill_(wrong)};
      EXPECT_THAT(ConfigErrorOf([&] { metrics.Read(0, Scores(0, 4), labels); }),
                  ::testing::HasSubstr(Str("expected a label from 0 to 2, got ", wrong)))
          << metric;
    }
  }
}

TEST(Metrics, TheLikeliestOfProbabilitiesIsTheLabel) {
  const auto labels = [](int from, int count) {
    return Tensors{Labels(from, count)[0].clamp_min(0)};
  };
  const auto probabilities = [](int from, int count) {
    const at::Tensor labels = Labels(from, count)[0].clamp_min(0);
    return Tensors{at::one_hot(labels, 3).to(at::kDouble).mul(0.4).add(0.2)};
  };
  const Job job = Asked("CrossEntropyLoss", {"accuracy", "top5", "f1", "confusion"});
  EXPECT_EQ(Of(job, Scores, probabilities, kSamples, 1), Of(job, Scores, labels, kSamples, 1));
}

/// The metrics of one rank after reading one micro-batch.
Value OfOne(const Job& job, const LayerSpec& loss, const at::Tensor& output,
            const at::Tensor& target) {
  testing::FakeScript script;
  Metrics metrics(job, loss, script);
  metrics.BeginRun(0);
  metrics.Read(0, {output}, {target});
  return metrics.Take(0, true, *MakeThreadTransports(1, {})[0]);
}

TEST(Metrics, OfALossFunctionGoByThePlannedDim) {
  const Job job = Asked("CrossEntropyLoss", {"accuracy", "top5", "f1", "confusion"});
  LayerSpec function;
  function.scripted = true;
  const at::Tensor square = at::arange(90, at::kDouble).mul(1.7).sin().view({10, 3, 3});
  for (const int dim : {1, 2}) {
    function.class_dim = dim;
    EXPECT_EQ(OfOne(job, function, square, square.argmax(dim))["accuracy"].as_double(), 1) << dim;
  }
  function.class_dim.reset();
  EXPECT_THAT(ConfigErrorOf([&] { OfOne(job, function, square, square.argmax(1)); }),
              ::testing::HasSubstr("eval = {class_dim = 1} or eval = {class_dim = -1}"));
  EXPECT_THAT(ConfigErrorOf([&] { OfOne(job, function, square, square); }),
              ::testing::HasSubstr("expected integer labels"));
}

TEST(Metrics, OfTwoClassesTakeLabelsOfAnyDtype) {
  const Job job = Asked("BCEWithLogitsLoss", {"accuracy", "f1"});
  const at::Tensor scores = at::tensor({-1.0, 2.0, 0.5, -3.0, 4.0}).view({5, 1});
  const at::Tensor labels = at::tensor({0, 1, 0, 1, 1}, at::kLong).view({5, 1});
  const Value expected = OfOne(job, job.loss, scores, labels.to(at::kDouble));
  EXPECT_DOUBLE_EQ(expected["accuracy"].as_double(), 0.6);
  for (const at::ScalarType dtype : {at::kLong, at::kByte, at::kBool}) {
    EXPECT_EQ(OfOne(job, job.loss, scores, labels.to(dtype)), expected) << dtype;
  }
}

TEST(Metrics, OfNumbersCompareElementsAtTheSamePlace) {
  const at::Tensor output = at::arange(24, at::kDouble).view({2, 3, 4});
  for (const char* metric : {"r2", "mae"}) {
    const Job job = Asked("MSELoss", {metric});
    EXPECT_THAT(ConfigErrorOf([&] { OfOne(job, job.loss, output, output.transpose(1, 2)); }),
                ::testing::HasSubstr(Str(metric, ": expected a target in the output's shape ",
                                         "(2, 3, 4), got (2, 4, 3)")));
  }
}

/// A loss with smoothing, weights or sums is not a mean of -log probabilities, so its exponential
/// is not the perplexity.
TEST(Metrics, PerplexityIsThatOfTheLabelsWhateverTheLoss) {
  const at::Tensor labels = Labels(0, kSamples)[0], counted = labels.ne(-100);
  const at::Tensor logs = Scores(0, kSamples)[0].log_softmax(1);
  const double expected = std::exp(-logs.gather(1, labels.clamp_min(0).unsqueeze(1))
                                        .squeeze(1)
                                        .mul(counted)
                                        .sum()
                                        .item<double>() /
                                   (kSamples - 1));
  const auto logs_of = [](int from, int count) {
    return Tensors{Scores(from, count)[0].log_softmax(1)};
  };
  const auto job = [](const char* type, const Value::Map& arguments) {
    return testing::MakeJob({testing::Make("Linear", {2, 2})}, testing::Make(type, {}, arguments),
                            {{"eval", MapOf({{"metrics", Value::List{"perplexity"}}})}});
  };
  const Job smoothed = job("CrossEntropyLoss", {{"label_smoothing", 0.1}});
  for (const int rows : {5, kSamples}) {
    const auto is = [&](const Job& asked, Make outputs) {
      EXPECT_NEAR(Of(asked, outputs, Labels, rows, 1)["perplexity"].as_double(), expected, 1e-12);
    };
    is(smoothed, Scores);
    is(job("CrossEntropyLoss", {{"weight", Value::List{1.0, 2.0, 3.0}}}), Scores);
    is(job("CrossEntropyLoss", {{"reduction", "sum"}}), Scores);
    is(job("NLLLoss", {{"weight", Value::List{1.0, 2.0, 3.0}}}), logs_of);
  }
  EXPECT_EQ(Of(smoothed, Scores, Labels, 4, 1), Of(smoothed, Scores, Labels, 4, 3));
}

TEST(Metrics, OfNumbersAreThoseOfAllSamples) {
  const Job job = Asked("MSELoss", {"r2", "mae"});
  const Value one = Of(job, Numbers, Targets, kSamples, 1);
  const at::Tensor y = Numbers(0, kSamples)[0], t = Targets(0, kSamples)[0];
  const at::Tensor spread = (t - t.mean(0)).square().sum(0), errors = (t - y).square().sum(0);
  EXPECT_NEAR(one["r2"].as_double(), (1 - errors / spread).mean().item<double>(), 1e-12);
  EXPECT_NEAR(one["mae"].as_double(), (t - y).abs().mean().item<double>(), 1e-12);
  for (const int rows : {1, 5, 12}) {
    const Value alone = Of(job, Numbers, Targets, rows, 1);
    EXPECT_NEAR(alone["r2"].as_double(), one["r2"].as_double(), 1e-12);
    EXPECT_NEAR(alone["mae"].as_double(), one["mae"].as_double(), 1e-12);
  }
  // The same micro-batches on more replicas give the same bits.
  EXPECT_EQ(Of(job, Numbers, Targets, 4, 1), Of(job, Numbers, Targets, 4, 2));
  EXPECT_EQ(Of(job, Numbers, Targets, 4, 1), Of(job, Numbers, Targets, 4, 3));
}

/// As for house prices, years or timestamps: the differences are small compared with the numbers.
TEST(Metrics, R2OfLargeTargetsIsThatOfTheirDifferences) {
  const Job job = Asked("MSELoss", {"r2", "mae"});
  const Make far = [](int from, int count) { return Tensors{Targets(from, count)[0].add(16e6)}; };
  const Make near = [](int from, int count) { return Tensors{Numbers(from, count)[0].add(16e6)}; };
  const at::Tensor y = near(0, kSamples)[0].sub(16e6), t = far(0, kSamples)[0].sub(16e6);
  const at::Tensor spread = (t - t.mean(0)).square().sum(0), errors = (t - y).square().sum(0);
  const double r2 = (1 - errors / spread).mean().item<double>();
  EXPECT_GT(r2, 0.5);
  for (const int rows : {1, 4, 5, kSamples}) {
    EXPECT_NEAR(Of(job, near, far, rows, 1)["r2"].as_double(), r2, 1e-12) << rows;
  }
  EXPECT_EQ(Of(job, near, far, 4, 1), Of(job, near, far, 4, 2));
  EXPECT_EQ(Of(job, near, far, 4, 1), Of(job, near, far, 4, 3));
}

TEST(Metrics, AColumnWhoseTargetsAreAllAlikeHasNothingToExplain) {
  const Job job = Asked("MSELoss", {"r2"});
  const Make alike = [](int, int count) { return Tensors{at::full({count, 1}, 0.1)}; };
  const Make off = [](int, int count) { return Tensors{at::full({count, 1}, 0.2)}; };
  EXPECT_EQ(Of(job, alike, alike, 5, 1)["r2"].as_double(), 1);
  EXPECT_EQ(Of(job, off, alike, 5, 1)["r2"].as_double(), 0);
  const Make unknown = [](int, int count) { return Tensors{at::full({count, 1}, NAN)}; };
  EXPECT_TRUE(std::isnan(Of(job, alike, unknown, 5, 1)["r2"].as_double()));
}

}  // namespace
}  // namespace strata
