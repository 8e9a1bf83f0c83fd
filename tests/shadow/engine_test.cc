// What a training on the shadow devices does and when; its errors; saves. Its bits for all kinds of
// jobs: matrix_test.cc.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/runtime/read_ahead.h"
#include "tests/shadow/device.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSteps = 2;  // that are counted

// Of two steps and all ranks.
int64_t TransfersIn(const Outcome& outcome, const std::string& action) {
  const auto count = outcome.counts.find(action);
  return count == outcome.counts.end() ? 0 : count->second.transfers;
}

TEST(CopyTest, DataAreCopiedOneMicroBatchAhead) {
  Machine::Get().Reset();
  const Outcome one = Train({"dense"}, "shadow");  // 4 micro-batches
  EXPECT_EQ(TransfersIn(one, "0F0"), kSteps * 4);  // inputs and targets of two
  EXPECT_EQ(TransfersIn(one, "0F1"), kSteps * 2);
  EXPECT_EQ(TransfersIn(one, "0F3"), 0);
  const Outcome pipe = Train({"dense", "1f1b", 2}, "shadow");  // 8 micro-batches
  EXPECT_EQ(TransfersIn(pipe, "0F0"), kSteps * 2);             // inputs
  EXPECT_EQ(TransfersIn(pipe, "1F6"), kSteps * 1);             // targets
  EXPECT_EQ(TransfersIn(pipe, "1F7"), 0);
}

class Zeros : public Dataset {
 public:
  int64_t size() const override { return 8; }
  TensorSpec input() const override { return {{3}, DType::kFloat32}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return 0; }
  std::string description() const override { return "zeros"; }
  void Read(Sample, std::byte* input, std::byte* target) const override {
    is_straight_ = is_straight_ && IsPinned(input) && IsPinned(target);
    if (input) std::memset(input, 0, static_cast<size_t>(input_bytes()));
    if (target) std::memset(target, 0, static_cast<size_t>(target_bytes()));
  }
  /// Whether no sample was read into memory that is not pinned.
  bool is_straight() const { return is_straight_; }

 private:
  static bool IsPinned(const void* memory) {
    return at::globalContext().getAcceleratorHooksInterface().isPinnedPtr(memory);
  }

  mutable std::atomic<bool> is_straight_ = true;
};

TEST(CopyTest, WhatIsReadAheadLiesInPinnedMemory) {
  Machine::Get().Reset();
  const auto orders = [](int64_t) { return std::vector<Order>{{{0, 1}, 0}, {{2, 3}, 0}}; };
  for (const bool pins : {false, true}) {
    const Zeros zeros;
    ReadAhead reader(zeros, orders, {.workers = 1, .depth = 2, .pins = pins});
    reader.Begin(0);
    for (int m = 0; m < 2; ++m) {
      for (const bool input : {true, false}) {
        EXPECT_EQ(reader.Take(m, input).at(0).is_pinned(), pins) << m << input;
      }
    }
    EXPECT_EQ(zeros.is_straight(), pins);
  }
}

/// Messages and collectives of a rank in a step.
int64_t MeetingsIn(const Outcome& outcome, const std::string& action, int ranks) {
  const auto count = outcome.counts.find(action);
  return count == outcome.counts.end() ? 0 : count->second.meetings / kSteps / ranks;
}

TEST(OverlapTest, SumsOverReplicasBeginInTheLastBackward) {
  for (const int zero : {0, 1, 2}) {
    Machine::Get().Reset();
    const Case c = {"large", "1f1b", 1, 2, 1, {{"zero", zero}}};
    const Outcome sums = Train(c, "shadow", "nccl");
    const int calls = zero > 0 ? 2 : 1;  // of NCCL for a piece
    EXPECT_EQ(MeetingsIn(sums, "0B0", 2), 0);
    if (zero == 2) {  // whose pieces end with parameters
      EXPECT_GT(MeetingsIn(sums, "0B1", 2), 0);
      EXPECT_GT(MeetingsIn(sums, "0REDUCE_GRAD", 2), 0);
    } else {
      EXPECT_EQ(MeetingsIn(sums, "0B1", 2), 2 * calls);
      EXPECT_EQ(MeetingsIn(sums, "0REDUCE_GRAD", 2), calls);
    }
    EXPECT_THAT(Machine::Get().reports(), IsEmpty());
  }
}

// Finding 6 of the review: autograd has one thread for each device, and ranks that share one wait
// in it for each other.
TEST(SharedDeviceTest, RanksOfTheModelAxisShareADevice) {
  Machine::Get().Reset();
  const Case c = {"tokens", "1f1b", 1, 1, 2, {{"hang_timeout", 30}}};
  ShowDevices(1);
  const Outcome shadow = Train(c, "shadow");
  ShowDevices(kDevices);
  EXPECT_EQ(shadow.digests, Train(c, "cpu").digests);
  EXPECT_THAT(Machine::Get().reports(), IsEmpty());
}

class DeviceErrorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Start(const Case& c) {
    Machine::Get().Reset();
    job_ = JobOf(c);
    return MakeThreadsEngine(job_, PlanOn("shadow", job_, script_), script_);
  }
  testing::FakeScript script_ = ScriptOf();
  Job job_;
};

// Finding 10: CUDA tells of a kernel's failure at any later call.
TEST_F(DeviceErrorTest, AFailureOfTheDeviceIsOfTheWorldAndHasAPlace) {
  const auto engine = Start({"dense"});
  engine->TrainStep();
  Machine::Get().FailNext("_fused_adamw_");
  try {
    engine->TrainStep();
    FAIL() << "nothing failed";
  } catch (const WorldError& error) {
    EXPECT_THAT(error.what(), HasSubstr("0STEP: device-side assert triggered in _fused_adamw_"));
  }
}

TEST_F(DeviceErrorTest, NumbersThatAKernelCannotTakeAreToldOnTheHost) {
  script_.data[3] = [](int64_t) {
    return MicroBatch{{at::full({8, 10}, 64, at::kLong)}, {at::zeros({8, 10}, at::kLong)}};
  };
  script_.data[4] = [this](int64_t i) {
    MicroBatch batch = script_.data[3](i);
    batch.input.push_back(at::arange(10).repeat({8, 1}));
    return batch;
  };
  for (const char* model : {"tied", "packed"}) {
    EXPECT_THAT(ConfigErrorOf([&] { Start({model})->TrainStep(); }),
                HasSubstr("expected a token from 0 to 63, got 64"))
        << model;
  }
  script_.data[1] = [](int64_t) {
    return MicroBatch{{at::zeros({8, 6})}, {at::full({8}, -7, at::kLong)}};
  };
  EXPECT_THAT(ConfigErrorOf([&] { Start({"dense"})->TrainStep(); }),
              HasSubstr("(stage 0, micro-batch 0): expected a label from 0 to 4, got -7"));
}

// Finding 11.
TEST_F(DeviceErrorTest, ThePeakOfMemoryIsTheDevices) {
  const auto engine = Start({"dense"});
  engine->TrainStep();
  constexpr int64_t kBytes = 50 << 20;
  const at::Tensor large = at::empty({kBytes}, at::dtype(at::kByte).device(Device(0)));
  EXPECT_GT(engine->TrainStep().peak_memory, kBytes);
}

class SavesTest : public ::testing::TestWithParam<const char*> {};

// Three steps, a save, and three more from there, perhaps with other degrees.
TEST_P(SavesTest, ATrainingGoesOnWithTheCpusBits) {
  const WithoutAvx2 exact;
  Machine::Get().Reset();
  const TestFolder folder;
  const auto train = [&](const std::string& device, int pipe, const char* key) {
    Value where = folder.Inside(device);
    if (std::string(key) == "save") where = testing::MapOf({{"dir", where}, {"every", 3}});
    const Value batch = testing::MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}});
    const Case c = {"dense", "1f1b", pipe,
                    2,       1,      {{key, where}, {"zero", 1}, {"steps", 6}, {"batch", batch}}};
    return Train(c, device, device == "cpu" ? "threads" : GetParam());
  };
  EXPECT_EQ(train("shadow", 2, "save").digests, train("cpu", 2, "save").digests);
  const Outcome on = train("shadow", 3, "resume"), cpu = train("cpu", 3, "resume");
  EXPECT_EQ(on.losses, cpu.losses);
  EXPECT_EQ(on.digests, cpu.digests);
  EXPECT_THAT(Machine::Get().reports(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Over, SavesTest, ::testing::Values("threads", "nccl"));

}  // namespace
}  // namespace strata::shadow
