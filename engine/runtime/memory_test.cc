// Compares the memory that engines use, at the start and while a save is written, with what the
// plan says. Uses the accounts of tensors (engine/base/tensors/allocator.h); ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/disk_log.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/testing.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/planned_program.h"
#include "engine/layers/head_chunks.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::FakeScript;
using testing::Make;
using testing::MapOf;
using testing::Start;

constexpr int64_t kWidth = 128, kRows = 8, kLayers = 12;
constexpr int64_t kLayer = 4 * kWidth * kWidth;  // bytes of one layer's weight in float32

/// Twelve large layers on two ranks, with few activations. They are in containers, which list the
/// tensors of their layers as well.
Job MakeJob(const Value::Map& more) {
  const LayerSpec linear = Make("Linear", {kWidth, kWidth});
  const std::vector<LayerSpec> layers(kLayers, MakeLayer("Sequential", {}, {}, {linear}, ""));
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({kWidth})}})},
                           {"parallel", MapOf({{"pipe", 2}})},
                           {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", kRows}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}})},
                           {"steps", 8}};
  return testing::MakeJob(layers, Make("MSELoss"), testing::With(keys, more));
}

MicroBatch Rows(int64_t i, int64_t rows) {
  const at::Tensor x = at::arange(rows * kWidth, at::kFloat).add(31 * i).mul(0.37).sin();
  return {{x.view({rows, kWidth})}, {x.flip(0).view({rows, kWidth})}};
}

FakeScript Script() {
  return testing::ScriptOf([](int64_t i) { return Rows(i, kRows); });
}

std::vector<RankMemory> Planned(const Job& job, FakeScript& script) {
  const Plan plan = PlanJob(job, {}, &script);
  const auto micro_batches = static_cast<int>(plan.batch.micro_batches);
  return ForecastMemory(job, plan, CostsOf(job, plan, &script),
                        TrainingProgram(job, plan, micro_batches, &script));
}

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() { InstallAllocator(); }

  std::unique_ptr<Engine> StartAnew(const Job& job) {
    ResetPeaks();
    return Start(job, script_);
  }
  /// The peak memory of a rank since the last reset, above its current memory.
  static int64_t PeakBeside(int rank) { return MemoryOf(rank).peak - MemoryOf(rank).current; }
  static void ResetPeaks() {
    for (int rank = 0; rank < 2; ++rank) ResetPeakMemory(rank);
  }

  Value Save(Value::Map more = {}) const {
    more.emplace_back("dir", folder_.Inside("runs"));
    return MapOf(std::move(more));
  }
  std::vector<std::string> DigestsOf(int64_t step) const {
    std::vector<std::string> digests;
    for (const SavedTensor& tensor :
         ReadManifest(folder_.Inside("runs/" + SaveName(step))).tensors) {
      digests.push_back(tensor.name + tensor.slices.at(0).digest);
    }
    std::ranges::sort(digests);
    return digests;
  }

  /// A limit of memory that lets a rank copy what it saves once.
  int64_t LimitForOneCopy() {
    int64_t limit = 0;
    for (const RankMemory& rank : Planned(MakeJob({}), script_)) {
      limit = std::max(limit, rank.total() + rank.weights + rank.weights / 2);
    }
    return limit;
  }

  TestFolder folder_;
  FakeScript script_ = Script();
};

int CountSyncs(const DiskLog& log, std::string_view file) {
  return static_cast<int>(std::ranges::count_if(log.events(), [&](const std::string& event) {
    return event.starts_with("sync") && event.find(file) != std::string::npos;
  }));
}

struct Kind {
  const char* name;
  Value::Map keys;
};

TEST_F(MemoryTest, AStartTakesNoMoreThanWhatSteps) {
  for (const Kind& kind :
       {Kind{"float32", {}},
        Kind{"bf16", {{"precision", MapOf({{"1", "bf16"}, {"params", "bf16"}})}}}}) {
    const Job job = MakeJob(kind.keys);
    const std::vector<RankMemory> planned = Planned(job, script_);
    const auto engine = StartAnew(job);
    for (const RankMemory& rank : planned) {
      // While a layer is built, its values exist in float32 as well.
      EXPECT_LE(MemoryOf(rank.rank).peak, rank.weights + rank.gradients + 2 * kLayer)
          << kind.name << " on rank " << rank.rank;
    }
    engine->Close();
  }
}

/// The system clears each page that a process gets. The initial values of a stage's layers leave
/// their memory to the gradients, so a start asks for no more than values and gradients.
TEST_F(MemoryTest, AStartAsksForTheMemoryOfValuesAndGradientsOnce) {
  constexpr int64_t kWide = 768, kMost = 4 << 20;  // beyond values and gradients
  const LayerSpec linear = Make("Linear", {kWide, kWide});
  const Job job =
      testing::MakeJob({kLayers, linear}, Make("MSELoss"),
                       {{"input", MapOf({{"shape", Value::IntList({kWide})}})},
                        {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", kRows}})},
                        {"data", MapOf({{"train", testing::Function(1)}})},
                        {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}})},
                        {"steps", 8}});
  script_ = testing::ScriptOf([](int64_t) {
    const at::Tensor x = at::ones({kRows, kWide});
    return MicroBatch{{x}, {x}};
  });
  ReleaseFreeMemory();
  const int64_t before = MappedMemory();
  const auto engine = StartAnew(job);
  const RankMemory planned = Planned(job, script_).at(0);
  EXPECT_LE(MappedMemory() - before, planned.weights + planned.gradients + kMost);
  engine->Close();
}

/// Averages of bf16 parameters are in float32, and the values are kept beside them.
TEST_F(MemoryTest, AnEvaluationOfAveragesTakesWhatIsPredicted) {
  const Job job =
      MakeJob({{"ema", 0.9}, {"precision", MapOf({{"1", "bf16"}, {"params", "bf16"}})}});
  const std::vector<RankMemory> planned = Planned(job, script_);
  const auto engine = StartAnew(job);
  engine->TrainStep();
  ResetPeaks();
  MicroBatches batch;
  batch.list = {Rows(0, kRows), Rows(1, kRows)};
  engine->EvalBatch(batch, nullptr);
  for (const RankMemory& rank : planned) {
    const int64_t state = rank.weights + rank.gradients + rank.optimizer;
    EXPECT_NEAR(MemoryOf(rank.rank).peak, state, 2 * kLayer) << "rank " << rank.rank;
  }
  engine->Close();
}

/// A language model of one rank whose logits are most of its memory: 512 rows of 8,192 classes take
/// 16 MiB, and a chunk of 64 rows 2 MiB.
TEST_F(MemoryTest, AHeadInChunksNeedsNoMemoryForLogits) {
  constexpr int64_t kTexts = 8, kTokens = 64, kWords = 8192, kDim = 32;
  script_ = testing::ScriptOf([](int64_t i) {
    const at::Tensor words = at::arange(kTexts * (kTokens + 1)).mul(97).add(i).remainder(kWords);
    const at::Tensor texts = words.view({kTexts, kTokens + 1});
    return MicroBatch{{texts.narrow(1, 0, kTokens)}, {texts.narrow(1, 1, kTokens)}};
  });
  const auto peak = [&](int64_t rows, const Value::Map& keys, const Value::Map& of_loss = {}) {
    const WithRowsOfChunk of_chunk(rows);
    const Job job = testing::MakeJob(
        {Make("Embedding", {kWords, kDim}), Make("Linear", {kDim, 4 * kDim}), Make("GELU"),
         Make("Linear", {4 * kDim, kDim}), Make("LayerNorm", {kDim}),
         Make("Linear", {kDim, kWords}, {{"bias", false}})},
        Make("CrossEntropyLoss", {}, of_loss),
        testing::With({{"input", MapOf({{"shape", Value::IntList({kTokens})}, {"dtype", "int64"}})},
                       {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", kTexts}})},
                       {"data", MapOf({{"train", testing::Function(1)}})},
                       {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}})},
                       {"steps", 8}},
                      keys));
    const RankMemory planned = Planned(job, script_).at(0);
    const auto engine = StartAnew(job);
    engine->TrainStep();
    const auto measured = static_cast<double>(engine->TrainStep().peak_memory);
    engine->Close();
    EXPECT_NEAR(static_cast<double>(planned.total()) / measured, 1, 0.05)
        << rows << " rows, " << MapOf(keys).ToJson() << ": " << measured;
    return measured;
  };
  peak(64, {}, {{"label_smoothing", 0.1}});
  constexpr double kLogits = 4.0 * kTexts * kTokens * kWords;
  for (const Value::Map& keys :
       {Value::Map{}, Value::Map{{"recompute", true}}, Value::Map{{"schedule", "gpipe"}},
        Value::Map{{"precision", "bf16"}}}) {
    // Whole, the backward has the log-softmax, its gradient and that of the logits; a chunk too.
    EXPECT_GT(peak(1024, keys), peak(64, keys) + 2.5 * kLogits) << MapOf(keys).ToJson();
  }
}

/// Values that skip layers are held once, whichever segments and stages they cross, and their
/// gradients exist from the join to the skip. A recomputed segment has the peak of a forward, too.
TEST_F(MemoryTest, ConnectionsAndSegmentsTakeWhatIsPredicted) {
  constexpr int64_t kMany = 4096, kFeatures = 64;
  const at::Tensor x = at::linspace(-1, 1, kMany).view({kMany, 1});
  FakeScript script = testing::ScriptOf([&](int64_t) { return MicroBatch{{x}, {x}}; });
  const LayerSpec square = Make("Linear", {kFeatures, kFeatures}), tanh = Make("Tanh");
  const std::vector<LayerSpec> layers = {Make("Linear", {1, kFeatures}),
                                         tanh,
                                         Make("skip", {"outer"}),
                                         square,
                                         tanh,
                                         Make("skip", {"inner"}),
                                         square,
                                         tanh,
                                         square,
                                         Make("join", {"inner"}),
                                         tanh,
                                         square,
                                         tanh,
                                         Make("join", {"outer"}, {{"how", "cat"}}),
                                         Make("Linear", {2 * kFeatures, kFeatures}),
                                         tanh,
                                         Make("Linear", {kFeatures, 1})};
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({1})}})},
                           {"batch", MapOf({{"micro_batches", 3}, {"micro_batch_size", kMany}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"schedule", "1f1b"},
                           {"partition", "uniform"},
                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}})},
                           {"steps", 2}};
  const auto every = [](int layers) { return MapOf({{"every", layers}}); };
  for (const Value& recompute :
       {Value(false), Value(true), every(1), every(2), every(3), every(5), every(7)}) {
    const Job job =
        testing::MakeJob(layers, Make("MSELoss"), testing::With(keys, {{"recompute", recompute}}));
    const auto planned = static_cast<double>(LargestTotal(Planned(job, script)));
    const auto engine = Start(job, script);
    engine->TrainStep();
    const auto measured = static_cast<double>(engine->TrainStep().peak_memory);
    engine->Close();
    EXPECT_NEAR(planned / measured, 1, 0.05)
        << recompute.ToJson() << ": planned " << planned / 0x1p20 << " MiB, measured "
        << measured / 0x1p20;
  }
}

/// A language model whose parameters are most of its memory, in blocks of about a layer.
TEST_F(MemoryTest, ShardsTakeWhatIsPredicted) {
  constexpr int64_t kTokens = 16, kWords = 200, kDim = 64;
  const WithGradientBlocks blocks(4 * 4 * kDim * kDim);
  script_ = testing::ScriptOf([](int64_t i) {
    const at::Tensor words = at::arange(2 * (kTokens + 1)).mul(97).add(i).remainder(kWords);
    const at::Tensor texts = words.view({2, kTokens + 1});
    return MicroBatch{{texts.narrow(1, 0, kTokens)}, {texts.narrow(1, 1, kTokens)}};
  });
  std::vector<LayerSpec> layers = {Make("Embedding", {kWords, kDim})};
  for (int i = 0; i < 8; ++i) {
    layers.push_back(Make("TransformerEncoderLayer", {kDim, 4, 4 * kDim, 0.0},
                          {{"batch_first", true}, {"norm_first", true}, {"causal", true}}));
  }
  layers.push_back(Make("LayerNorm", {kDim}));
  layers.push_back(Make("Linear", {kDim, kWords}));
  struct {
    const char* schedule;
    int pipe, stages_per_rank, micro_batches;
    bool saves;
  } const cases[] = {
      {"1f1b", 1, 1, 1, true},  {"1f1b", 2, 1, 1, true},       {"1f1b", 1, 1, 3, false},
      {"1f1b", 2, 1, 4, false}, {"gpipe", 2, 1, 4, true},      {"zb_h1", 2, 1, 4, false},
      {"zbv", 2, 2, 4, false},  {"looped_bfs", 2, 2, 4, true}, {"looped_bfs", 1, 4, 4, true},
  };
  for (const auto& c : cases) {
    for (const int data : {2, 4}) {
      int64_t before = 0;
      for (const int zero : {0, 1, 2}) {
        const Value::Map keys = {
            {"input", MapOf({{"shape", Value::IntList({kTokens})}, {"dtype", "int64"}})},
            {"parallel", MapOf({{"pipe", c.pipe}, {"data", data}})},
            {"batch", MapOf({{"micro_batches", c.micro_batches}, {"micro_batch_size", 2}})},
            {"data", MapOf({{"train", testing::Function(1)}})},
            {"schedule", c.schedule},
            {"stages_per_rank", c.stages_per_rank},
            {"optimizer", "adamw"},
            {"zero", zero},
            {"steps", 8}};
        const Job job =
            testing::MakeJob(layers, Make("CrossEntropyLoss", {}, {{"class_dim", -1}}), keys);
        const int64_t planned = LargestTotal(Planned(job, script_));
        const auto engine = Start(job, script_);
        engine->TrainStep();
        const int64_t measured = engine->TrainStep().peak_memory;
        engine->Close();
        const std::string which =
            Str(c.schedule, " ", c.pipe, "x", c.stages_per_rank, ", ", data, " replicas, ",
                c.micro_batches, " micro-batches, zero = ", zero, ": ", measured);
        std::cout << which << ", predicted " << planned << "\n";
        // With zero = 2 the peak depends on how many blocks are being summed at the time.
        const double most = zero == 2 ? 0.1 : 0.05;
        EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(measured), 1, most) << which;
        if (zero == 2 && c.saves) {
          EXPECT_LT(measured, 0.93 * static_cast<double>(before)) << which;
        }
        before = measured;
      }
    }
  }
}

TEST_F(MemoryTest, ASaveThatTheTrainingWaitsForCopiesNothing) {
  const auto engine = StartAnew(MakeJob({{"save", Save()}}));
  engine->TrainStep();
  ResetPeaks();
  engine->Save();
  for (int rank = 0; rank < 2; ++rank) EXPECT_LT(PeakBeside(rank), kLayer / 4) << rank;
  engine->Close();
}

TEST_F(MemoryTest, ASaveBesideTheTrainingCopiesWhereThereIsRoom) {
  const auto engine = StartAnew(MakeJob({{"save", Save({{"every", 1}})}}));
  engine->TrainStep();
  for (int rank = 0; rank < 2; ++rank) {
    // Bytes each of weights, gradients and the copy.
    constexpr int64_t kValues = kLayer * kLayers / 2;
    EXPECT_GE(MemoryOf(rank).peak, 3 * kValues) << rank;
  }
  engine->Close();
}

/// Every rank of the machine must have memory for a copy like this rank's.
TEST_F(MemoryTest, ASaveWaitsWhereTheMachineHasNoRoomForTheCopiesOfItsRanks) {
  const Job job = MakeJob({{"parallel", MapOf({{"pipe", 1}})}, {"save", Save({{"every", 1}})}});
  for (const int here : {1, 1 << 30}) {
    std::filesystem::remove_all(folder_.Inside("runs"));
    RankPlace place;
    place.local_world_size = here;
    Plan plan = PlanJob(job, {}, &script_);
    plan.transport = "gloo";  // in which each rank is a process
    ::testing::internal::CaptureStderr();
    const auto engine =
        MakeRankEngine(job, plan, script_, std::move(MakeThreadTransports(1, {})[0]), place);
    engine->TrainStep();
    engine->Close();
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("the training waits while a save") != std::string::npos, here > 1) << told;
  }
}

/// The copy of a save in progress is part of the peak of the steps beside it. The next save's copy
/// takes its place, so it must not be counted twice.
TEST_F(MemoryTest, ThePeakOfStepsBesideASaveIsNotThatOfTheNext) {
  const std::vector<RankMemory> planned = Planned(MakeJob({}), script_);
  ::testing::internal::CaptureStderr();
  const auto engine =
      StartAnew(MakeJob({{"memory", LimitForOneCopy()}, {"save", Save({{"every", 1}})}}));
  int64_t peak = 0;
  for (int step = 0; step < 5; ++step) peak = std::max(peak, engine->TrainStep().peak_memory);
  engine->Save();
  engine->Close();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("the training waits while a save"), told.npos) << told;
  EXPECT_GT(peak, planned[0].total() + planned[0].weights / 2) << "which is in the peak";
}

/// The first save is written while the second step runs. That step has so many rows that there is
/// no memory for a copy of its own save, so the next step makes it if nobody calls FinishSave().
TEST_F(MemoryTest, ASaveThatAStepOwesIsMadeBeforeTheNextOne) {
  script_.data[1] = [](int64_t i) { return Rows(i, i / 2 == 1 ? 64 * kRows : kRows); };
  ::testing::internal::CaptureStderr();
  const auto engine =
      StartAnew(MakeJob({{"memory", LimitForOneCopy()}, {"save", Save({{"every", 1}})}}));
  std::vector<int64_t> told;
  for (int step = 1; step <= 4; ++step) {
    const StepResult result = engine->TrainStep();
    told.push_back(result.save ? result.save->step : 0);
  }
  engine->Close();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the training waits while a save"));
  EXPECT_THAT(told, ::testing::ElementsAre(0, 1, 2, 3));
}

/// One stage has many layers and one has few. Only the second has memory for a copy.
TEST_F(MemoryTest, ASaveWaitsForTheDiskWhereARankHasNoRoomForACopy) {
  const Value cuts = Value::IntList({0, 10, kLayers});
  const std::vector<RankMemory> planned = Planned(MakeJob({{"partition", cuts}}), script_);
  const int64_t limit = planned[0].total() + planned[0].weights / 2;
  ASSERT_GT(limit, planned[1].total() + 2 * planned[1].weights);
  const auto train = [&](const Value::Map& more) {
    std::filesystem::remove_all(folder_.Inside("runs"));
    const Value::Map keys = {{"partition", cuts}, {"save", Save({{"every", 2}, {"keep", 0}})}};
    const DiskLog log(folder_.path());
    const auto engine = StartAnew(MakeJob(testing::With(keys, more)));
    for (int step = 1; step <= 5; ++step) {
      const StepResult result = engine->TrainStep();
      if (more.empty()) continue;
      EXPECT_LE(result.peak_memory, limit) << step;
      // The result of a step is returned before its save is complete.
      EXPECT_THAT(ListSaves(folder_.Inside("runs")), ::testing::SizeIs((step - 1) / 2)) << step;
      EXPECT_FALSE(result.save) << step;
      EXPECT_EQ(result.owes_save, step % 2 == 0) << step;
      if (result.owes_save) {
        EXPECT_EQ(engine->FinishSave().error, "") << step;
      }
      // Complete before the next step begins.
      for (const char* file : {"rank-00000", "rank-00001"}) {
        EXPECT_EQ(CountSyncs(log, file), step / 2) << file;
      }
      EXPECT_THAT(ListSaves(folder_.Inside("runs")), ::testing::SizeIs(step / 2)) << step;
    }
    engine->Save();
    engine->Close();
    return DigestsOf(4);
  };
  const std::vector<std::string> expected = train({});
  ::testing::internal::CaptureStderr();
  const std::vector<std::string> waited = train({{"memory", limit}});
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(waited, expected);
  const std::string warning = "the training waits while a save is written";
  EXPECT_THAT(told, ::testing::HasSubstr(warning));
  EXPECT_EQ(told.find(warning), told.rfind(warning)) << "told once";
}

}  // namespace
}  // namespace strata
