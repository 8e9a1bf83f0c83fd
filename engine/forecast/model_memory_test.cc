// Compares the predicted memory of the jobs in models/ with what `strata train` measured: the peak
// of the engine's own tensors on the larger rank, --device=cpu --threads=1, over Gloo, on the
// machine of docs/benchmarks.md. Tensor sizes depend on shapes and order, not on the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/plan_testing.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

Job WithRest(Job job) {
  job.loss = Make("CrossEntropyLoss");
  job.parallel.pipe = 2;
  job.device = "cpu";
  job.threads = 1;
  return job;
}

Job Digits() {
  Job job;
  job.layers = {Make("Conv2d", {1, 32, 3}, {{"padding", 1}}),
                Make("ReLU"),
                Make("Conv2d", {32, 64, 3}, {{"padding", 1}}),
                Make("ReLU"),
                Make("MaxPool2d", {2}),
                Make("Flatten"),
                Make("Dropout", {0.3}),
                Make("Linear", {1024, 64}),
                Make("ReLU"),
                Make("Linear", {64, 10})};
  job.input = TensorSpec{{1, 8, 8}};
  job.batch = {.micro_batches = 4, .micro_batch_size = 16};
  job.optimizer.type = "adam";
  return WithRest(job);
}

/// Convolutions over large images. oneDNN copies their tensors into layouts of its own.
Job Pictures(int64_t pixels, int64_t size) {
  Job job;
  job.layers = {Make("Conv2d", {3, 16, 3}, {{"padding", 1}}),
                Make("ReLU"),
                Make("Conv2d", {16, 16, 3}, {{"stride", 2}, {"padding", 1}}),
                Make("ReLU"),
                Make("AdaptiveAvgPool2d", {1}),
                Make("Flatten"),
                Make("Linear", {16, 10})};
  job.input = TensorSpec{{3, pixels, pixels}};
  job.batch = {.micro_batches = 1, .micro_batch_size = size};
  job.optimizer.type = "adam";
  return WithRest(job);
}

/// The text_lm job without its layer written in Lua, which adds a trained vector.
Job TextLm() {
  Job job;
  job.layers = {Make("Embedding", {256, 128})};
  for (int i = 0; i < 4; ++i) {
    job.layers.push_back(Make("TransformerEncoderLayer", {128, 4},
                              {{"dim_feedforward", 512},
                               {"dropout", 0.1},
                               {"activation", "gelu"},
                               {"batch_first", true},
                               {"norm_first", true},
                               {"causal", true}}));
  }
  job.layers.push_back(Make("LayerNorm", {128}));
  job.layers.push_back(Make("Linear", {128, 256}));
  job.input = TensorSpec{{64}, DType::kInt64};
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.optimizer.type = "adamw";
  job = WithRest(job);
  return job;
}

Job Transformer() {
  Job job;
  job.layers = {Make("Embedding", {10000, 512}, {{"split", "row"}})};
  for (int i = 0; i < 8; ++i) {
    job.layers.push_back(Make("TransformerDecoderLayer", {512, 8}, {{"dropout", 0.1}}));
  }
  job.layers.push_back(Make("LayerNorm", {512}));
  job.layers.push_back(Make("Linear", {512, 10000}, {{"split", "column"}}));
  job.input = TensorSpec{{32}, DType::kInt64};
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.optimizer.type = "adam";
  return WithRest(job);
}

/// A language model of many words and few layers: 1,024 rows of logits would take 125 MiB.
Job ManyWords() {
  Job job;
  job.layers = {Make("Embedding", {32000, 256}),
                Make("TransformerDecoderLayer", {256, 4, 1024, 0.0}), Make("LayerNorm", {256}),
                Make("Linear", {256, 32000}, {{"bias", false}})};
  job.input = TensorSpec{{256}, DType::kInt64};
  job.batch = {.micro_batches = 4, .micro_batch_size = 4};
  job.optimizer.type = "adamw";
  job = WithRest(job);
  job.loss = Make("CrossEntropyLoss", {}, {{"class_dim", -1}});
  return job;
}

struct Case {
  const char* name;
  Job job;
  double mebibytes;  ///< measured
};

Job With(Job job, const char* schedule, bool recompute, int pipe) {
  job.schedule.name = schedule;
  if (recompute) job.recompute.method = RecomputeSpec::Method::kStages;
  job.parallel.pipe = pipe;
  return job;
}

TEST(ForecastMemoryTest, IsWithinATenthOfWhatWasMeasured) {
  const std::vector<Case> cases = {
      {"digits", With(Digits(), "1f1b", false, 2), 2.203},
      {"digits gpipe", With(Digits(), "gpipe", false, 2), 3.461},
      {"digits again", With(Digits(), "1f1b", true, 2), 1.641},
      {"digits alone", With(Digits(), "1f1b", false, 1), 2.325},
      {"pictures 256", With(Pictures(256, 1), "1f1b", false, 1), 17.77},
      {"pictures 512", With(Pictures(512, 1), "1f1b", false, 1), 71.02},
      {"pictures 1024", With(Pictures(1024, 1), "1f1b", false, 1), 284.0},
      {"two pictures", With(Pictures(1024, 2), "1f1b", false, 1), 568.0},
      {"textlm", With(TextLm(), "1f1b", false, 2), 41.07},
      {"textlm gpipe", With(TextLm(), "gpipe", false, 2), 69.11},
      {"textlm alone", With(TextLm(), "1f1b", false, 1), 47.82},
      {"many words", With(ManyWords(), "1f1b", false, 1), 428},
      {"transformer", With(Transformer(), "1f1b", false, 2), 476.1},
      {"transformer gpipe", With(Transformer(), "gpipe", false, 2), 654.1},
  };
  for (const Case& c : cases) {
    const Plan plan = PlanJob(c.job, {}, nullptr);
    const int micro_batches = static_cast<int>(plan.batch.micro_batches);
    const std::vector<RankMemory> ranks =
        ForecastMemory(c.job, plan, CostsOf(c.job, plan, nullptr),
                       TrainingProgram(c.job, plan, micro_batches, nullptr));
    const double predicted = static_cast<double>(LargestTotal(ranks)) / 0x1p20;
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
    for (const RankMemory& rank : ranks) {
      std::cout << c.name << " rank " << rank.rank << ": weights " << mib(rank.weights)
                << " optimizer " << mib(rank.optimizer) << " activations " << mib(rank.activations)
                << " buffers " << mib(rank.buffers) << " total " << mib(rank.total())
                << " measured " << c.mebibytes << "\n";
    }
    EXPECT_NEAR(predicted / c.mebibytes, 1, 0.1) << c.name;
  }
}

}  // namespace
}  // namespace strata
