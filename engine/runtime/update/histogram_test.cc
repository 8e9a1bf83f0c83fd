// Compares histograms with a count of every element, for tensors and for jobs on grids of ranks.
#include "engine/runtime/update/histogram.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using testing::FakeScript;
using testing::Make;
using testing::MapOf;
using testing::Rows;
using testing::RowsScript;
using testing::Start;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmall = 0x1p-40;

void ExpectCountOf(const Value& histogram, const at::Tensor& tensor, const std::string& what) {
  const at::Tensor all = tensor.to(at::kDouble).flatten();
  EXPECT_EQ(histogram["num"].as_int(), all.numel()) << what;
  EXPECT_EQ(histogram["min"].as_double(), all.min().item<double>()) << what;
  EXPECT_EQ(histogram["max"].as_double(), all.max().item<double>()) << what;
  const double squares = all.square().sum().item<double>();
  EXPECT_NEAR(histogram["sum"].as_double(), all.sum().item<double>(),
              1e-12 * all.abs().sum().item<double>())
      << what;
  EXPECT_NEAR(histogram["sum_squares"].as_double(), squares, 1e-12 * squares) << what;
  const Value::List &limits = histogram["limits"].as_list(),
                    &counts = histogram["counts"].as_list();
  ASSERT_EQ(limits.size(), counts.size()) << what;
  double begin = -kInfinity;
  bool was_empty = false;
  for (size_t i = 0; i < limits.size(); ++i) {
    const double end = limits[i].as_double();
    EXPECT_LT(begin, end) << what;
    EXPECT_EQ(counts[i].as_int(), at::logical_and(all >= begin, all < end).sum().item<int64_t>())
        << what << " from " << begin << " to " << end;
    const bool is_empty = counts[i].as_int() == 0;
    EXPECT_FALSE(is_empty && was_empty) << what << ": neighbours that are empty";
    if (!is_empty && std::max(std::abs(begin), std::abs(end)) > kSmall) {
      EXPECT_LE(end - begin, 0.13 * std::max(std::abs(begin), std::abs(end))) << what;
    }
    was_empty = is_empty;
    begin = end;
  }
  EXPECT_FALSE(was_empty) << what << ": an empty end";
}

TEST(HistogramTest, CountsEveryElementOnce) {
  const at::Tensor sizes = at::arange(-600, 600, at::kDouble).mul(0.11).exp2();  // 2^-66 to 2^66
  const at::Tensor wide = sizes.mul(at::arange(1200).mul(1.7).sin()).to(at::kFloat);
  ExpectCountOf(HistogramOf(wide.view({30, 40}), 1), wide, "wide");
  ExpectCountOf(HistogramOf(wide.view({30, 40}).t(), 8), wide.div(8), "divided, transposed");
  ExpectCountOf(HistogramOf(wide.to(at::kBFloat16), 1), wide.to(at::kBFloat16), "bf16");
  ExpectCountOf(HistogramOf(at::zeros({7}), 3), at::zeros({7}), "zeros");
  ExpectCountOf(HistogramOf(at::full({3}, -2.5f), 1), at::full({3}, -2.5f), "one value");
}

TEST(HistogramTest, ALimitBelongsToTheBucketAboveIt) {
  std::vector<float> edges = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-39f};
  for (const double size :
       {kSmall, 0x1p-41, 0x1p-39, 1e-10, 0.125, 1.0, 1.125, 1.25, 1.875, 2.0, 1e30}) {
    for (const double sign : {1, -1}) {
      const auto edge = static_cast<float>(sign * size);
      edges.insert(edges.end(), {edge, std::nextafter(edge, 0.0f), std::nextafter(edge, 2 * edge)});
    }
  }
  const at::Tensor tensor = at::tensor(edges);
  ExpectCountOf(HistogramOf(tensor, 1), tensor, "edges");
}

TEST(HistogramTest, TheLargestNumbersHaveALimit) {
  const float most = std::numeric_limits<float>::max();
  const Value histogram = HistogramOf(at::tensor({most, -most, 1.0f}), 0.5);
  EXPECT_EQ(histogram["max"].as_double(), most);
  EXPECT_EQ(histogram["limits"].as_list().back().as_double(), most);
  EXPECT_EQ(histogram["counts"].as_list().back().as_int(), 1);
  EXPECT_EQ(histogram["counts"].as_list().front().as_int(), 1);
}

TEST(HistogramTest, NoElementsHaveNoLargestNumber) {
  const Value histogram = HistogramOf(at::zeros({0, 3}), 1);
  for (const char* number : {"min", "max", "num", "sum"}) {
    EXPECT_EQ(histogram[number].as_double(), 0) << number;
  }
  EXPECT_TRUE(histogram["counts"].as_list().empty());
}

// ---- Histograms of jobs ----

struct Grid {
  const char* name;
  int pipe = 1, data = 1, model = 1;
  Value::Map keys = {};
};

void PrintTo(const Grid& grid, std::ostream* out) { *out << grid.name; }

/// A job with a tie across stages, layers divided over the model axis, and a frozen layer.
Job MakeJob(const Grid& grid, Value::Map keys = {}) {
  const auto tied = [] {
    LayerSpec layer = Make("Linear", {16, 16});
    layer.tied_key = "square";
    layer.tied_weights = {"weight", "bias"};
    return layer;
  };
  const std::vector<LayerSpec> layers = {Make("Linear", {6, 16}),
                                         tied(),
                                         Make("GELU"),
                                         Make("Linear", {16, 24}, {{"split", "column"}}),
                                         Make("ReLU"),
                                         Make("Linear", {24, 16}, {{"split", "row"}}),
                                         Make("Linear", {16, 16}),
                                         tied(),
                                         Make("LayerNorm", {16}),
                                         Make("Linear", {16, 5})};
  keys.insert(
      keys.end(),
      {{"input", MapOf({{"shape", Value::IntList({6})}})},
       {"parallel", MapOf({{"pipe", grid.pipe}, {"data", grid.data}, {"model", grid.model}})},
       {"batch", MapOf({{"micro_batches", 4 / grid.data}, {"micro_batch_size", 8}})},
       {"data", MapOf({{"train", testing::Function(1)}})},
       {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})},
       {"freeze", Value::List{6}},
       {"histograms", 1},
       {"steps", 4}});
  keys.insert(keys.end(), grid.keys.begin(), grid.keys.end());
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), keys);
}

class HistogramsTest : public ::testing::TestWithParam<Grid> {};

TEST_P(HistogramsTest, AreOfWhatTheOptimizerGets) {
  FakeScript script = RowsScript();
  const auto engine = Start(MakeJob(GetParam()), script);
  for (int step = 0; step < 3; ++step) {
    const Value histograms = engine->TrainStep().histograms;
    std::vector<std::string> names;
    for (const auto& [name, histogram] : histograms.as_map()) {
      names.push_back(name);
      Outputs gradient;
      engine->ReadTensor(name, Engine::Kind::kGradient, gradient);
      ASSERT_EQ(gradient.list.size(), 1u) << name;
      ExpectCountOf(histogram, gradient.list[0][0], name);
    }
    EXPECT_THAT(names, ::testing::ElementsAre("0.weight", "0.bias", "1.weight", "1.bias",
                                              "3.weight", "3.bias", "5.weight", "5.bias",
                                              "8.weight", "8.bias", "9.weight", "9.bias"));
  }
  engine->Close();
}

INSTANTIATE_TEST_SUITE_P(
    Grids, HistogramsTest,
    ::testing::Values(
        Grid{"one"}, Grid{"stages", 3}, Grid{"replicas", 2, 2},
        Grid{"zero1", 2, 2, 1, {{"zero", 1}}}, Grid{"model", 1, 1, 2},
        Grid{"zero2", 2, 2, 1, {{"zero", 2}}}, Grid{"all", 2, 2, 2, {{"zero", 2}}},
        Grid{"two_stages_a_rank", 2, 1, 1, {{"stages_per_rank", 2}, {"schedule", "zbv"}}},
        Grid{"bf16", 2, 1, 1, {{"precision", "bf16"}}},
        Grid{"fp16", 2, 1, 1, {{"precision", MapOf({{"1", "fp16"}, {"scale", 1024.0}})}}}),
    [](const auto& info) { return std::string(info.param.name); });

Value FirstOf(const Job& job) {
  FakeScript script = RowsScript();
  const auto engine = Start(job, script);
  const Value histograms = engine->TrainStep().histograms;
  engine->Close();
  return histograms;
}

TEST(HistogramsTest, HaveTheSameBitsOnAnyStagesAndBeforeClipping) {
  const Value one = FirstOf(MakeJob({"one"}));
  EXPECT_EQ(FirstDifference(FirstOf(MakeJob({"three", 3})), one), "");
  EXPECT_EQ(FirstDifference(FirstOf(MakeJob({"clipped"}, {{"clip", 1e-3}})), one), "");
  const Value replicas = FirstOf(MakeJob({"replicas", 1, 2}));
  for (const int zero : {1, 2}) {
    EXPECT_EQ(FirstDifference(FirstOf(MakeJob({"zero", 1, 2, 1, {{"zero", zero}}})), replicas), "");
  }
}

TEST(HistogramsTest, ComeEveryNthStepThatIsFinite) {
  FakeScript script;
  script.data[1] = [](int64_t i) {
    MicroBatch rows = Rows(i);
    if (i / 4 == 3) rows.input[0].div_(0);
    return rows;
  };
  Grid grid = {"one"};
  Job job = MakeJob(grid, {{"nonfinite", "skip"}});
  job.histograms = 2;
  const auto engine = Start(job, script);
  std::vector<bool> have;
  for (int step = 0; step < 6; ++step) have.push_back(!engine->TrainStep().histograms.is_null());
  engine->Close();
  EXPECT_THAT(have, ::testing::ElementsAre(false, true, false, false, false, true));
}

}  // namespace
}  // namespace strata
