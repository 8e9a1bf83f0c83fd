#include "engine/search/fit_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan/plan_testing.h"
#include "engine/search/alternative.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// The needs of a job by simple numbers: 300 bytes of weights, gradients and optimizer, of which
/// each stage has a share and ZeRO shards a third (zero = 2 two thirds), and 100 bytes of
/// activations a sample. Samples take 1 s, and 0.3 s more where all layers run forward again, which
/// leaves a quarter of the activations. A choice of layers keeps as many as the memory allows.
std::optional<PlanNeeds> ByNumbers(const Job& job) {
  const Batch batch = ResolveBatch(job.batch);
  const int pipe = std::max(job.parallel.pipe, 1), data = std::max(job.parallel.data, 1);
  const int64_t state = 100 + 100 / (job.zero == 2 ? data : 1) + 100 / (job.zero > 0 ? data : 1);
  const int64_t all = 100 * batch.micro_batch_size;
  int64_t kept = job.recompute.method == RecomputeSpec::Method::kEvery ? all / 4 : all;
  if (job.recompute.method == RecomputeSpec::Method::kAuto && job.memory > 0) {
    kept = std::clamp(job.memory - state / pipe, all / 4, all);
  }
  const double again = 0.4 * static_cast<double>(all - kept) / static_cast<double>(all);
  const auto samples = static_cast<double>(batch.size);
  return PlanNeeds{.memory = state / pipe + kept,
                   .step = samples * (1 + again) / pipe + 0.1 * batch.micro_batches,
                   .samples = batch.size * data,
                   .ranks = pipe * data,
                   .data = data,
                   .layers = 8};
}

Job JobOf(int pipe, int data, int64_t micro_batch_size) {
  Job job;
  job.parallel = {pipe, data, 1};
  job.batch = ResolveBatch({.micro_batches = 4, .micro_batch_size = micro_batch_size});
  return job;
}

Job WithMemory(Job job, int64_t memory) {
  job.memory = memory;
  return job;
}

std::vector<std::string> FlagsOf(const std::vector<FitWay>& ways) {
  std::vector<std::string> flags;
  std::ranges::transform(ways, std::back_inserter(flags), &FitWay::flags);
  return flags;
}

TEST(WaysToFit, AreTheBestOfEachKind) {
  struct {
    Job job;
    int64_t limit;
    std::vector<std::string> flags;
  } const cases[] = {
      // All kinds fit; more ranks are dearer than more time.
      {JobOf(1, 1, 4),
       650,
       {"--batch.micro_batches=8 --batch.micro_batch_size=2", "--recompute=every:1",
        "--zero=1 --data=2"}},
      // With a limit in the job, layers are chosen to keep to it.
      {WithMemory(JobOf(1, 1, 4), 650),
       650,
       {"--batch.micro_batches=8 --batch.micro_batch_size=2", "--recompute=auto",
        "--zero=1 --data=2"}},
      {WithMemory(JobOf(1, 1, 4), 390),
       390,
       {"--recompute=auto --batch.micro_batches=16 --batch.micro_batch_size=1",
        "--batch.micro_batches=16 --batch.micro_batch_size=1 --zero=1 --data=2",
        "--batch.micro_batches=16 --batch.micro_batch_size=1 --pipe=2"}},
      // Recomputation alone is not enough.
      {JobOf(1, 1, 4),
       390,
       {"--recompute=every:1 --batch.micro_batches=16 --batch.micro_batch_size=1",
        "--batch.micro_batches=16 --batch.micro_batch_size=1 --zero=1 --data=2",
        "--batch.micro_batches=16 --batch.micro_batch_size=1 --pipe=2"}},
      {JobOf(1, 2, 1), 360, {"--zero=1", "--recompute=every:1", "--pipe=2"}},
      {JobOf(1, 2, 1), 310, {"--zero=2", "--pipe=2"}},
      // All of them together.
      {JobOf(1, 1, 4),
       70,
       {"--recompute=every:1 --batch.micro_batches=16 --batch.micro_batch_size=1 --pipe=8"}},
      {JobOf(1, 1, 4), 20, {}}};
  for (const auto& c : cases) {
    const std::vector<FitWay> ways = WaysToFit(c.job, *ByNumbers(c.job), c.limit, ByNumbers);
    EXPECT_EQ(FlagsOf(ways), c.flags) << c.limit;
    for (const FitWay& way : ways) EXPECT_LE(way.needs.memory, c.limit) << way.flags;
  }
}

TEST(WaysToFit, LeavesOutWhatIsImpossible) {
  Job job = JobOf(1, 1, 4);
  job.train_data.kind = "function";  // its micro-batches have a size of their own
  const auto predict = [](const Job& tried) {
    return tried.parallel.data > 1 ? std::nullopt : ByNumbers(tried);
  };
  EXPECT_EQ(FlagsOf(WaysToFit(job, *predict(job), 600, predict)),
            (std::vector<std::string>{"--recompute=every:1", "--pipe=2"}));
  EXPECT_THAT(
      WaysToFit(job, *predict(job), 600, [](const Job&) { return std::optional<PlanNeeds>(); }),
      IsEmpty());
}

/// A prediction of a large network takes half a second.
TEST(WaysToFit, PredictsFewJobs) {
  int predicted = 0;
  const auto count = [&](const Job& job) {
    ++predicted;
    return ByNumbers(job);
  };
  const auto predictions = [&](int64_t limit) {
    predicted = 0;
    WaysToFit(JobOf(1, 1, 4), *ByNumbers(JobOf(1, 1, 4)), limit, count);
    return predicted;
  };
  EXPECT_LE(predictions(20), 2) << "nothing fits";
  EXPECT_LE(predictions(390), 40) << "two kinds together fit";
}

TEST(FitWaysText, HasMemoryAndStepOfEach) {
  EXPECT_EQ(FitWaysText({{"--zero=1", {.memory = 3 << 20, .step = 0.25, .ranks = 4}}}),
            "to make it fit, the cheapest first  memory    step    ranks\n"
            "--zero=1                            3.00 MiB  250 ms      4\n");
  EXPECT_THAT(FitWaysText({}), HasSubstr("nor do all of them together"));
}

/// Predictions of real jobs.
std::optional<PlanNeeds> Planned(const Job& job) {
  const Alternative tried = TryJobHere(job, {}, nullptr);
  if (!tried.trouble.empty()) return std::nullopt;
  return NeedsOf(tried.plan, tried.forecast.peak_memory(), tried.forecast.step());
}

TEST(RecomputeNote, IsForAStageThatSavesNothing) {
  Job job;
  for (int i = 0; i < 4; ++i) {
    job.layers.push_back(Make("TransformerEncoderLayer", {32, 4}, {{"dim_feedforward", 64}}));
  }
  job.input = TensorSpec{{64, 32}};
  job.loss = Make("MSELoss");
  job.optimizer.type = "adam";
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.device = "cpu";
  EXPECT_EQ(RecomputeNote(job, Planned), "");
  job.recompute.method = RecomputeSpec::Method::kStages;
  EXPECT_THAT(RecomputeNote(job, Planned),
              AllOf(HasSubstr("saves nothing here"), HasSubstr("\"every:1\" would need")));
  job.parallel.pipe = 4;
  EXPECT_EQ(RecomputeNote(job, Planned), "") << "the first stage keeps only its inputs";

  job.parallel.pipe = 1;
  const PlanNeeds now = *Planned(job);
  const int64_t limit = now.memory - 1;
  const std::vector<FitWay> ways = WaysToFit(job, now, limit, Planned);
  EXPECT_THAT(ways, Not(IsEmpty()));
  for (const FitWay& way : ways) EXPECT_LE(way.needs.memory, limit) << way.flags;
}

}  // namespace
}  // namespace strata
