#include "engine/runtime/batch_source.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/comm/specs.h"
#include "engine/data/testing_sources.h"
#include "engine/job/data_source.h"
#include "engine/runtime/testing.h"

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

// ---- Functions of the script ----

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
  EXPECT_THAT(feed->inputs(), IsEmpty());  // unknown, because a function may give any shapes
  EXPECT_THAT(feed->ReadInputs(), Each(TensorSpecs{{{2, 3}, DType::kInt64}}));
  const int64_t expected = (4 * 2 + 1) * 3 + 2;  // (step * D + replica) * M + m
  EXPECT_EQ(feed->Input(2)[0][0][0].item<int64_t>(), expected);
  EXPECT_EQ(feed->Target(2)[0][0].item<int64_t>(), -expected);
  // One call for both halves.
  EXPECT_THAT(calls_, ElementsAre(expected - 2, expected - 1, expected));
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

// ---- Datasets ----

std::vector<int64_t> Images(const Tensors& tensors) {
  std::vector<int64_t> images;  // each identified by its first pixel
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
  const TensorSpecs input = SpecsOf(feed->Input(1));
  EXPECT_EQ(feed->inputs()[1], input);
  EXPECT_EQ(input, (TensorSpecs{{{1, 1, 2, 2}, DType::kFloat32}}));
  EXPECT_EQ(SpecsOf(feed->Target(0)), (TensorSpecs{{{2}, DType::kInt64}}));
}

TEST_F(DatasetSourceTest, AHalfIsTakenOnce) {
  const Value map = MakeDataSource("images", {}, {{"shape", Value::IntList({1, 2, 2})}}, "a.lua:1");
  job_.train_data = ParseDataSpec(map, nullptr, "a.lua:1");
  const auto source =
      OpenSource(job_, job_.train_data, {.batch = {4, 2, 2}, .wants_both = true}, script_);
  const auto feed = source->Next(0);
  feed->Input(0);
  EXPECT_DEATH(feed->Input(0), "micro-batch 0 is read twice");
}

TEST_F(DatasetSourceTest, APassSeesEverySampleOnce) {
  const auto source = Open(false);
  EXPECT_EQ(source->runs_per_pass(), 3);
  auto in_order = Pass(*source, 0, 3);
  const auto shuffled_source = Open(Value());  // without the option, the split "train" is shuffled
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

// ---- Every source, with workers and without ----

class EverySourceTest : public ::testing::Test {
 protected:
  EverySourceTest() {
    job_.seed = 77;
    script_.samples[1] = [](std::span<const int64_t> indices) {
      PlainSample sample;
      sample.input.specs = {{{2}, DType::kInt64}};
      sample.target.specs = {{{}, DType::kInt64}};
      for (PlainTensors* half : {&sample.input, &sample.target}) {
        for (const int64_t i : indices) {
          half->bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
          if (half == &sample.input)
            half->bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
        }
      }
      return sample;
    };
  }

  /// The bytes that runs `begin` to `end` - 1 read from a newly opened source.
  std::vector<std::string> Read(const DataSpec& spec, int64_t begin, int64_t end, int replica = 0,
                                int replicas = 1) {
    job_.train_data = spec;
    const auto source =
        OpenSource(job_, job_.train_data,
                   {.batch = {4, 2, 2}, .replica = replica, .replicas = replicas}, script_);
    std::vector<std::string> read;
    for (int64_t run = begin; run < end; ++run) {
      const auto feed = source->Next(run);
      for (int m = 0; m < static_cast<int>(feed->inputs().size()); ++m) {
        std::string bytes;
        const Tensors input = feed->Input(m), target = feed->Target(m);
        EXPECT_EQ(SpecsOf(input), feed->inputs()[static_cast<size_t>(m)]);
        for (const Tensors* half : {&input, &target}) {
          for (const at::Tensor& tensor : *half) {
            bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
          }
        }
        read.push_back(std::move(bytes));
      }
    }
    return read;
  }

  /// Sets workers and prefetch; sources that call the script get no workers.
  static DataSpec With(DataSpec spec, int64_t workers, int64_t prefetch) {
    const bool is_scripted = spec.options.ToLua().find("net.lua:5") != std::string::npos;
    if (is_scripted) workers = 0;
    spec.options.Set("workers", workers).Set("prefetch", prefetch);
    return spec;
  }

  Job job_;
  FakeScript script_;
};

/// A source that is opened in the middle of an epoch reads the same as one that has read all runs
/// before, whatever the number of threads. The same holds for one replica of two.
TEST_F(EverySourceTest, ResumesWithEqualBits) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "sources";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  DatasetContext context;
  context.script = &script_;
  for (const Value& source : EverySource(folder)) {
    if (!FindOption(source, "batch").is_null()) continue;  // FakeScript gives no batches
    SCOPED_TRACE(source.ToLua());
    const DataSpec spec = SpecOf(source, context);
    if (FindOption(source, "targets") == Value(false)) {
      EXPECT_THAT(ConfigErrorOf([&] { Read(With(spec, 0, 1), 0, 1); }),
                  ::testing::HasSubstr("there are no targets"));
      continue;
    }
    const auto whole = Read(With(spec, 0, 1), 0, 9);
    EXPECT_EQ(Read(With(spec, 2, 3), 0, 9), whole);
    for (const int64_t step : {1, 4}) {
      const auto before = Read(With(spec, 3, 5), 0, step), after = Read(With(spec, 1, 2), step, 9);
      std::vector<std::string> both = before;
      both.insert(both.end(), after.begin(), after.end());
      EXPECT_EQ(both, whole) << step;
    }
    if (FactsOf(spec).samples < 8) continue;
    // A step of two replicas reads the samples of two steps of one replica.
    std::vector<std::string> replicas = Read(With(spec, 2, 2), 0, 1, 0, 2);
    const auto second = Read(With(spec, 0, 1), 0, 1, 1, 2);
    replicas.insert(replicas.end(), second.begin(), second.end());
    EXPECT_EQ(replicas, Read(With(spec, 0, 1), 0, 2));
  }
}

TEST_F(EverySourceTest, FunctionsOfAScriptHaveNoWorkers) {
  DatasetContext context;
  context.script = &script_;
  const Value own =
      MakeDataSource("dataset", {}, {{"length", 9}, {"get", FakeFunction()}}, "net.lua:9");
  for (const Value& source : {own, MakeDataStep("take", own, {3}, {}, "net.lua:9")}) {
    DataSpec spec = SpecOf(source, context);
    EXPECT_EQ(Read(spec, 0, 1).size(), 2u) << "without a word there are none";
    spec.options.Set("workers", 2);
    EXPECT_THAT(
        ConfigErrorOf([&] { Read(spec, 0, 1); }),
        HasSubstr("net.lua:9: data.workers: functions of the script run in the rank's own"));
  }
}

TEST_F(EverySourceTest, SomeThreadsReadAheadWhereTheRankDoesNotCompute) {
  DatasetContext context;
  context.script = &script_;
  DataSpec made =
      SpecOf(MakeDataSource("tokens", {7}, {{"length", 4}, {"samples", 9}}, "net.lua:9"), context);
  EXPECT_EQ(WorkersFor(made, 0), 0);
  EXPECT_EQ(WorkersFor(made, 2), 2);
  EXPECT_EQ(WorkersFor(made, 15), 8);
  EXPECT_EQ(PrefetchFor(made, 0), 2);
  EXPECT_EQ(PrefetchFor(made, 4), 5) << "one for each worker, and the one that is taken";
  made.options.Set("workers", 1);
  made.options.Set("prefetch", 3);
  EXPECT_EQ(WorkersFor(made, 15), 1) << "as it says";
  EXPECT_EQ(PrefetchFor(made, 4), 3) << "as it says";
  const DataSpec own =
      SpecOf(MakeDataSource("dataset", {}, {{"length", 9}, {"get", FakeFunction()}}, "net.lua:9"),
             context);
  EXPECT_EQ(WorkersFor(own, 15), 0) << "functions of the script";
}

TEST_F(EverySourceTest, DataThatAreNotTrainedWithComeInTheirOrder) {
  DatasetContext context;
  const auto tokens = [&](Value::Map options) {
    options.insert(options.end(), {{"length", 4}, {"samples", 40}});
    return SpecOf(MakeDataSource("tokens", {7}, options, "net.lua:9"), context);
  };
  const std::vector<std::string> in_order = Read(tokens({{"shuffle", false}}), 0, 4);
  EXPECT_NE(Read(tokens({}), 0, 4), in_order);
  job_.test_data = tokens({});
  const auto source = OpenSource(job_, job_.test_data, {.batch = {4, 2, 2}}, script_);
  const auto ordered =
      OpenSource(job_, tokens({{"shuffle", false}}), {.batch = {4, 2, 2}}, script_);
  for (int64_t run = 0; run < 4; ++run) {
    const auto one = source->Next(run), other = ordered->Next(run);
    EXPECT_TRUE(one->Input(0)[0].equal(other->Input(0)[0])) << run;
  }
}

TEST_F(DatasetSourceTest, ReadsARunAgain) {
  const auto source = Open(Value());
  const auto once = Pass(*source, 1, 2);
  EXPECT_EQ(Pass(*source, 1, 2), once) << "a step that is not finite runs once more";
  EXPECT_EQ(Pass(*source, 0, 3).size(), 11u);
  EXPECT_EQ(Pass(*source, 1, 2), once);
}

// ---- Given by the caller ----

TEST(GivenFeedTest, MayHaveAnySizes) {
  MicroBatches batches;
  batches.list = {{{at::zeros({3, 2})}, {at::zeros({3})}}, {{at::zeros({1, 2})}, {at::zeros({1})}}};
  const auto feed = FeedOf(batches, 0, 1);
  EXPECT_THAT(Rows(*feed), ElementsAre(3, 1));
  EXPECT_EQ(feed->Input(1)[0].const_data_ptr(), batches.list[1].input[0].const_data_ptr());
}

// Several ranks of a process may be given the same tensors, and layers may write to their inputs.
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
