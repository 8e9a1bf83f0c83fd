#include "engine/spec/build_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/spec/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(BuildJob, DefaultsAreTheDesigns) {
  const Job job = Build();
  EXPECT_EQ(job.name, "net");
  EXPECT_EQ(job.layers.size(), 4u);
  EXPECT_EQ(job.partition.method, "parameters");
  EXPECT_EQ(job.parallel.pipe, 0);
  EXPECT_EQ(job.schedule.name, "1f1b");
  EXPECT_EQ(job.stages_per_rank, 1);
  EXPECT_EQ(job.optimizer.type, "sgd");
  EXPECT_EQ(job.lr_schedule.type, "constant");
  EXPECT_EQ(job.clip, 0);
  EXPECT_EQ(job.seed, 1234);
  EXPECT_EQ(job.device, "");
  EXPECT_EQ(job.transport, "");
  EXPECT_EQ(job.threads, 0);
  EXPECT_EQ(job.timeout, 1800);
  EXPECT_EQ(job.hang_timeout, 120);
  EXPECT_EQ(job.eval.every, 0);
  EXPECT_EQ(job.eval.metric, "accuracy");
  EXPECT_FALSE(job.losses);
  EXPECT_FALSE(job.input.has_value());
  EXPECT_EQ(job.train_data.kind, "");
}

TEST(BuildJob, TakesTheDesignsExample) {
  const Job job = Build({
      {"name", "alexnet"},
      {"input", MapOf({{"shape", Ints({1, 8, 8})}, {"dtype", "float"}})},
      {"partition", "uniform"},
      {"parallel", MapOf({{"pipe", 2}, {"data", 1}, {"model", 1}})},
      {"schedule", "gpipe"},
      {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})},
      {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}})},
      {"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})},
      {"steps", 200},
  });
  EXPECT_EQ(job.name, "alexnet");
  EXPECT_EQ(job.input->ToString(), "float32 (1, 8, 8)");
  EXPECT_EQ(job.partition.method, "uniform");
  EXPECT_EQ(job.parallel.pipe, 2);
  EXPECT_EQ(job.schedule.name, "gpipe");
  EXPECT_EQ(job.batch.size, 32);
  EXPECT_EQ(job.optimizer.options["lr"], Value(0.01));
  EXPECT_EQ(job.optimizer.options["nesterov"], Value(false));
  EXPECT_EQ(job.train_data.kind, "digits");
  EXPECT_EQ(job.train_data.options["split"], Value("train"));
  EXPECT_EQ(job.test_data.options["split"], Value("test"));
  EXPECT_EQ(job.steps, 200);
  EXPECT_EQ(job.epochs, 0);
}

}  // namespace
}  // namespace strata
