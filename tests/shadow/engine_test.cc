// Trainings on the shadow devices, over memory and over the fake NCCL: the CPU's bits, no races,
// and how often the host waits for the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "tests/shadow/device.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrainingTest : public ::testing::TestWithParam<std::tuple<Case, const char*>> {};

constexpr int kSteps = 2;  // that are counted

/// Of all ranks in a step: in the actions of micro-batches, and beside them.
struct Waits {
  int64_t of_micro_batches = 0, of_steps = 0;
  std::string what;
};

Waits WaitsOf(const std::map<std::string, Counts>& counts) {
  Waits waits;
  for (const auto& [action, count] : counts) {
    if (count.synchronisations == 0) continue;
    const size_t kind = action.find_first_not_of("0123456789");
    const bool is_of_micro_batch = kind != std::string::npos && kind > 0 &&
                                   std::isdigit(static_cast<unsigned char>(action.back())) != 0;
    (is_of_micro_batch ? waits.of_micro_batches : waits.of_steps) += count.synchronisations;
    for (const auto& [why, n] : count.synchronising)
      waits.what += Str(" ", action, ":", why, "=", n);
  }
  return waits;
}

/// Products with few rows and max pools have kernels of our own on the CPU alone, which add up in
/// another order than ATen's.
bool HasKernelsOfOurs(const Case& c) {
  return c.Name().starts_with("dense") || c.Name().starts_with("images");
}

TEST_P(TrainingTest, HasTheCpusBitsAndNeitherRacesNorStalls) {
  const auto& [c, transport] = GetParam();
  Machine::Get().Reset();
  const Outcome shadow = Train(c, "shadow", transport);
  EXPECT_THAT(Machine::Get().reports(), IsEmpty());
  const Outcome cpu = Train(c, "cpu", "threads");
  ASSERT_EQ(shadow.losses.size(), cpu.losses.size());
  ASSERT_EQ(shadow.norms.size(), cpu.norms.size());
  // An evaluation's loss was seen to round otherwise where ranks share the vocabulary, with the
  // same bits in all weights.
  const double tolerance = HasKernelsOfOurs(c) ? 1e-6 : c.model_axis > 1 ? 1e-7 : 0;
  for (size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(shadow.losses[i], cpu.losses[i], tolerance * cpu.losses[i]);
  }
  if (!HasKernelsOfOurs(c)) {
    EXPECT_EQ(shadow.digests, cpu.digests);
  }
  for (size_t i = 0; i < cpu.norms.size(); ++i) {
    EXPECT_NEAR(shadow.norms[i], cpu.norms[i], (HasKernelsOfOurs(c) ? 1e-5 : 1e-12) * cpu.norms[i]);
  }
  int64_t launches = 0, transfers = 0;
  for (const auto& [action, count] : shadow.counts) {
    launches += count.launches;
    transfers += count.transfers;
  }
  const Waits waits = WaitsOf(shadow.counts);
  std::printf("| %-42s | %-7s | %5ld | %4ld | %2ld | %4.1f |%s\n", c.Name().c_str(), transport,
              launches / kSteps, transfers / kSteps, waits.of_micro_batches / kSteps,
              static_cast<double>(waits.of_steps) / kSteps / c.ranks(), waits.what.c_str());
  EXPECT_EQ(waits.of_micro_batches, 0) << waits.what;
  EXPECT_LE(waits.of_steps, kSteps * c.ranks()) << waits.what;
}

std::vector<Case> Cases() {
  const auto stages = [](int n) { return Value::Map{{"stages_per_rank", n}}; };
  return {
      {"dense"},
      {"images"},
      {"tokens"},
      {"tied"},
      {"dense", "gpipe", 2},
      {"dense", "1f1b", 3},
      {"dense", "1f1b", 4},
      {"dense", "interleaved_1f1b", 2, 1, 1, stages(2)},
      {"dense", "looped_bfs", 2, 1, 1, stages(2)},
      {"dense", "zb_h1", 3},
      {"dense", "zb_h2", 2},
      {"dense", "interleaved_zb", 2, 1, 1, stages(2)},
      {"dense", "zbv", 2, 1, 1, stages(2)},
      {"dense", "v_half", 2, 1, 1, stages(2)},
      {"dense", "v_min", 2, 1, 1, stages(2)},
      {"dense", "dualpipev", 2, 1, 1, stages(2)},
      {"images", "1f1b", 2},
      {"tokens", "1f1b", 2},
      {"tokens", "zb_h1", 3},
      {"tied", "1f1b", 2},
      {"tied", "gpipe", 3},
      {"dense", "1f1b", 2, 1, 1, {{"recompute", true}}},
      {"dense", "1f1b", 2, 1, 1, {{"join", true}}},
      {"dense", "1f1b", 1, 2},
      {"dense", "1f1b", 2, 2},
      {"images", "1f1b", 1, 2},
      {"dense", "1f1b", 2, 2, 1, {{"zero", 1}}},
      {"tied", "1f1b", 2, 2},
      {"tokens", "1f1b", 1, 1, 2},
      {"tokens", "1f1b", 2, 1, 2},
      {"tokens", "1f1b", 2, 2, 2},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, TrainingTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::Values("threads", "nccl")),
                         [](const auto& info) {
                           return std::get<0>(info.param).Name() + "_" + std::get<1>(info.param);
                         });

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

/// Messages and collectives of a rank in a step.
int64_t MeetingsIn(const Outcome& outcome, const std::string& action, int ranks) {
  const auto count = outcome.counts.find(action);
  return count == outcome.counts.end() ? 0 : count->second.meetings / kSteps / ranks;
}

TEST(OverlapTest, SumsOverReplicasBeginInTheLastBackward) {
  for (const int zero : {0, 1}) {
    Machine::Get().Reset();
    const Case c = {"large", "1f1b", 1, 2, 1, {{"zero", zero}}};
    const Outcome sums = Train(c, "shadow", "nccl");
    const int calls = zero == 1 ? 2 : 1;  // of NCCL for a piece
    EXPECT_EQ(MeetingsIn(sums, "0B0", 2), 0);
    EXPECT_EQ(MeetingsIn(sums, "0B1", 2), 2 * calls);
    EXPECT_EQ(MeetingsIn(sums, "0REDUCE_GRAD", 2), calls);
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
  EXPECT_THAT(ConfigErrorOf([&] { Start({"tied"})->TrainStep(); }),
              HasSubstr("expected a token from 0 to 63, got 64"));
  script_.data[1] = [](int64_t) {
    return MicroBatch{{at::zeros({8, 6})}, {at::full({8}, -7, at::kLong)}};
  };
  EXPECT_THAT(ConfigErrorOf([&] { Start({"dense"})->TrainStep(); }),
              HasSubstr("the loss: expected a label from 0 to 4, got -7"));
}

// Finding 11.
TEST_F(DeviceErrorTest, ThePeakOfMemoryIsTheDevices) {
  const auto engine = Start({"dense"});
  engine->TrainStep();
  constexpr int64_t kBytes = 50 << 20;
  const at::Tensor large = at::empty({kBytes}, at::dtype(at::kByte).device(Device(0)));
  EXPECT_GT(engine->TrainStep().peak_memory, kBytes);
}

}  // namespace
}  // namespace strata::shadow
