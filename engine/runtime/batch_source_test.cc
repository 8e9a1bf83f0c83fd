#include "engine/runtime/batch_source.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/comm/groups/specs.h"
#include "engine/runtime/testing.h"
#include "engine/spec/job/data_source.h"

namespace strata {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeScript;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> Rows(const Feed& feed) {
  std::vector<int64_t> rows;
  for (size_t m = 0; m < feed.inputs().size(); ++m) rows.push_back(feed.rows(static_cast<int>(m)));
  return rows;
}

// A Lua function

class FunctionSourceTest : public ::testing::Test {
 protected:
  FunctionSourceTest() {
    job_.train_data.kind = "function";
    job_.train_data.function = testing::Function(1);
    script_.data[1] = [this](int64_t i) {
      calls_.push_back(i);
      return MicroBatch{{at::full({2, 3}, i)}, {at::full({2}, -i)}};
    };
  }

  std::unique_ptr<BatchSource> Open(bool wants_both) {
    return OpenSource(job_, job_.train_data,
                      {.batch = {6, 3, 2}, .replica = 1, .replicas = 2, .wants_both = wants_both},
                      script_);
  }

  Job job_;
  FakeScript script_;
  std::vector<int64_t> calls_;
};

TEST_F(FunctionSourceTest, CountsMicroBatchesOverStepsAndReplicas) {
  const auto source = Open(true);
  EXPECT_EQ(source->runs_per_pass(), 0);
  const auto feed = source->Next(4);
  EXPECT_THAT(feed->inputs(), IsEmpty());  // a function may give any shapes
  EXPECT_THAT(feed->ReadInputs(), Each(TensorSpecs{{{2, 3}, DType::kInt64}}));
  const int64_t expected = (4 * 2 + 1) * 3 + 2;  // (step * D + replica) * M + m
  EXPECT_EQ(feed->Input(2)[0][0][0].item<int64_t>(), expected);
  EXPECT_EQ(feed->Target(2)[0][0].item<int64_t>(), -expected);
  EXPECT_THAT(calls_, ElementsAre(expected - 2, expected - 1, expected));  // one call for both
}

TEST_F(FunctionSourceTest, RefusesAMicroBatchWithoutRows) {
  script_.data[1] = [](int64_t i) {
    return MicroBatch{{i == 4 ? at::zeros({}) : at::zeros({2, 3})}, {at::zeros({2})}};
  };
  EXPECT_THAT(ConfigErrorOf([&] { Open(true)->Next(0)->ReadInputs(); }),
              HasSubstr("micro-batch 4 without rows"));
}

TEST_F(FunctionSourceTest, KeepsNoHalfThatNobodyWants) {
  const auto source = Open(false);
  const auto feed = source->Next(0);
  EXPECT_EQ(feed->Target(0)[0][0].item<int64_t>(), -3);
  feed->Target(1);
  EXPECT_THAT(calls_, ElementsAre(3, 4));
}

// Datasets

std::vector<int64_t> Images(const Tensors& tensors) {
  std::vector<int64_t> images;  // each told by its first pixel
  for (int64_t row = 0; row < tensors[0].size(0); ++row) {
    images.push_back(static_cast<int64_t>(1e6 * tensors[0][row].flatten()[0].item<double>()));
  }
  return images;
}

class DatasetSourceTest : public ::testing::Test {
 protected:
  std::unique_ptr<BatchSource> Open(const Value& shuffle, int replica = 0, int replicas = 1) {
    const Value map = MakeDataSource("images", {},
                                     {{"shape", Value::IntList({1, 2, 2})},
                                      {"classes", 3},
                                      {"samples", 11},
                                      {"shuffle", shuffle}},
                                     "net.lua:9");
    job_.train_data = ParseDataSpec(map, nullptr, "net.lua:9");
    return OpenSource(job_, job_.train_data,
                      {.batch = {4, 2, 2}, .replica = replica, .replicas = replicas}, script_);
  }

  static std::vector<int64_t> Pass(BatchSource& source, int64_t begin, int64_t end) {
    std::vector<int64_t> seen;
    for (int64_t run = begin; run < end; ++run) {
      const auto feed = source.Next(run);
      for (int m = 0; m < static_cast<int>(feed->inputs().size()); ++m) {
        const auto images = Images(feed->Input(m));
        EXPECT_EQ(static_cast<int64_t>(images.size()), feed->rows(m));
        seen.insert(seen.end(), images.begin(), images.end());
      }
    }
    return seen;
  }

  Job job_;
  FakeScript script_;
};

TEST_F(DatasetSourceTest, ReadsBothHalvesOfAMicroBatch) {
  const auto source = Open(false);
  const auto feed = source->Next(2);
  EXPECT_THAT(Rows(*feed), ElementsAre(2, 1));
  EXPECT_EQ(feed->inputs()[1], SpecsOf(feed->Input(1)));
  EXPECT_EQ(SpecsOf(feed->Input(1)), (TensorSpecs{{{1, 1, 2, 2}, DType::kFloat32}}));
  EXPECT_EQ(SpecsOf(feed->Target(0)), (TensorSpecs{{{2}, DType::kInt64}}));
}

TEST_F(DatasetSourceTest, APassSeesEverySampleOnce) {
  const auto source = Open(false);
  EXPECT_EQ(source->runs_per_pass(), 3);
  auto in_order = Pass(*source, 0, 3);
  const auto shuffled_source = Open(Value());  // left out: the split "train" is shuffled
  auto shuffled = Pass(*shuffled_source, 0, 3);
  const auto second = Pass(*shuffled_source, 3, 6);
  EXPECT_EQ(in_order.size(), 11u);
  EXPECT_NE(shuffled, in_order);
  EXPECT_NE(shuffled, second);
  std::ranges::sort(in_order);
  std::ranges::sort(shuffled);
  EXPECT_EQ(shuffled, in_order);
}

TEST_F(DatasetSourceTest, ReplicasShareAPass) {
  auto whole = Pass(*Open(false), 0, 3);
  auto parts = Pass(*Open(false, 0, 2), 0, 2);
  const auto other = Pass(*Open(false, 1, 2), 0, 2);
  parts.insert(parts.end(), other.begin(), other.end());
  std::ranges::sort(whole);
  std::ranges::sort(parts);
  EXPECT_EQ(parts, whole);
}

// The caller's

TEST(GivenFeedTest, MayHaveAnySizes) {
  MicroBatches batches;
  batches.list = {{{at::zeros({3, 2})}, {at::zeros({3})}}, {{at::zeros({1, 2})}, {at::zeros({1})}}};
  const auto feed = FeedOf(batches, 0, 1);
  EXPECT_THAT(Rows(*feed), ElementsAre(3, 1));
  EXPECT_EQ(feed->Input(1)[0].const_data_ptr(), batches.list[1].input[0].const_data_ptr());
}

// Several ranks of a process may be given them, and layers may write to what they are given.
TEST(GivenFeedTest, NobodyWritesToThem) {
  MicroBatches batches;
  batches.list = {{{at::zeros({3, 2})}, {at::zeros({3})}}};
  const auto feed = FeedOf(batches, 0, 1);
  feed->Input(0)[0].fill_(7);
  feed->Target(0)[0].fill_(7);
  EXPECT_EQ(feed->Input(0)[0].sum().item<int>(), 0);
  EXPECT_EQ(feed->Target(0)[0].sum().item<int>(), 0);
}

TEST(GivenFeedTest, ReplicasShareThemInOrder) {
  MicroBatches batches;
  for (int i = 0; i < 5; ++i) batches.list.push_back({{at::full({i + 1}, i)}, {at::full({1}, -i)}});
  const auto first = FeedOf(batches, 0, 3), last = FeedOf(batches, 2, 3);
  EXPECT_THAT(Rows(*first), ElementsAre(1, 2));
  EXPECT_THAT(Rows(*last), ElementsAre(5));
  EXPECT_EQ(last->most(), 2);
  EXPECT_EQ(last->Target(0)[0].item<int>(), -4);
  batches.list.resize(2);
  EXPECT_THAT(Rows(*FeedOf(batches, 2, 3)), ElementsAre());
}

TEST(GivenFeedTest, NothingIsAnError) {
  EXPECT_THAT(ConfigErrorOf([] { FeedOf({}, 0, 1); }), HasSubstr("at least one micro-batch"));
  MicroBatches batches;
  batches.list = {{{at::zeros({3, 2})}, {}}, {{at::zeros({0, 2})}, {}}};
  EXPECT_THAT(ConfigErrorOf([&] { FeedOf(batches, 0, 1); }), HasSubstr("micro-batch 1"));
}

}  // namespace
}  // namespace strata
