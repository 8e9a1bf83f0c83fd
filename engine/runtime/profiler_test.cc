// Tests of what the profiler measures and what not, its progress reports, and its errors. Layers
// count their runs; measured times are never compared.
#include "engine/runtime/profiler.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "engine/job/job_fields.h"
#include "engine/layers/testing.h"
#include "engine/runtime/testing.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MakeJob;
using testing::ScriptedLayer;

void Ignore(double) {}

struct Profiling {
  FakeScript script;
  Job job;
  MeasureTask task;

  explicit Profiling(const std::vector<LayerSpec>& layers)
      : job(MakeJob(layers, Make("MSELoss"),
                    {{"input", testing::MapOf({{"shape", Value::IntList({4})}})}})) {
    task.job = &job;
    task.input = TensorSpecs{TensorSpec{{8, 4}}};
    task.outputs.assign(layers.size(), task.input);
    task.batch = {32, 4, 8};
    task.device = "cpu";
  }

  /// Makes layer `id` a layer that counts its forwards, and returns the count.
  std::shared_ptr<std::atomic<int>> Count(int id) {
    auto runs = std::make_shared<std::atomic<int>>(0);
    script.layers[id] = [runs](auto&, const Tensors& inputs, const Pass&) {
      ++*runs;
      return Tensors{inputs[0] * 2};
    };
    return runs;
  }

  Profile Measure(const KnownSeconds& known = {}, const ProfileProgress& progress = Ignore) {
    return MeasureLayers(task, known, script, progress,
                         [&](const KnownSeconds& layers, double share) {
                           measured.push_back(layers);
                           least_share = std::min(least_share, share);
                         });
  }

  std::vector<KnownSeconds> measured;  ///< as reported by LayersMeasured
  double least_share = 1;
};

TEST(Profiler, MeasuresThePassesThatALayerHas) {
  Profiling profiling({Make("Linear", {4, 4}), Make("Tanh")});
  const Profile profile = profiling.Measure();
  ASSERT_EQ(profile.layers.size(), 2u);
  EXPECT_GT(profile.layers[0].forward, 0);
  EXPECT_GT(profile.layers[0].input_grad, 0);
  EXPECT_GT(profile.layers[0].weight_grad, 0);
  EXPECT_GT(profile.layers[1].forward, 0);
  EXPECT_GT(profile.layers[1].input_grad, 0);
  EXPECT_GT(profile.update, 0);
  EXPECT_GT(profile.norm, 0);
  EXPECT_GT(profile.clear, 0);
}

TEST(Profiler, MeasuresInTheTypeThatLayersComputeIn) {
  Profiling profiling({Make("Linear", {4, 4}), ScriptedLayer(0)});
  std::atomic<int> halves = 0, runs = 0;
  profiling.script.layers[0] = [&](auto&, const Tensors& inputs, const Pass&) {
    ++runs;
    halves += inputs[0].scalar_type() == at::kBFloat16;
    return Tensors{inputs[0] * 2};
  };
  const std::string before = LayerKey(profiling.task, 0);
  profiling.job.precision = {.name = "bf16", .compute = DType::kBFloat16};
  EXPECT_NE(LayerKey(profiling.task, 0), before) << "seconds of float32 are no seconds of bf16";
  EXPECT_GT(profiling.Measure().layers[0].weight_grad, 0);
  EXPECT_GT(runs, 0);
  EXPECT_EQ(halves, runs);
}

TEST(Profiler, MeasuresTheUpdateOfEveryOptimizer) {
  Profiling profiling({Make("Tanh")});
  for (const OptionTable& type : OptimizerTypes()) {
    const Value::Map keys = {{"input", testing::MapOf({{"shape", Value::IntList({4})}})},
                             {"optimizer", testing::MapOf({{"1", type.name}, {"lr", 0.01}})}};
    profiling.job.optimizer =
        MakeJob({Make("Linear", {4, 4, false})}, Make("MSELoss"), keys).optimizer;
    EXPECT_GT(profiling.Measure().update, 0) << type.name;
  }
}

// The first micro-batch is shorter than planned, as padded ones are, and the only one of a small
// dataset.
TEST(Profiler, MeasuresTheLossOfWhatItReads) {
  Profiling profiling({Make("Linear", {4, 4}), Make("Tanh")});
  profiling.script = testing::ScriptOf([](int64_t) {
    return MicroBatch{{at::ones({3, 4})}, {at::ones({3, 4})}};
  });
  profiling.job.train_data.kind = "function";
  profiling.job.train_data.function = testing::Function(1);
  EXPECT_GT(profiling.Measure().loss.forward, 0);
}

TEST(Profiler, LayersOfOneKeyAreMeasuredOnce) {
  Profiling profiling({ScriptedLayer(0), ScriptedLayer(0), ScriptedLayer(0)});
  const auto runs = profiling.Count(0);
  const Profile profile = profiling.Measure();
  // The first layer has no layer before it, so its key differs.
  EXPECT_EQ(LayerKey(profiling.task, 1), LayerKey(profiling.task, 2));
  EXPECT_EQ(profile.layers[1], profile.layers[2]);
  EXPECT_GE(*runs, 2 * 7);
  EXPECT_LE(*runs, 2 * 32);
}

TEST(Profiler, WhatIsKnownIsTakenAndNotRun) {
  Profiling profiling({ScriptedLayer(0), Make("Tanh")});
  const auto runs = profiling.Count(0);
  const PassSeconds known = {1, 2, 3};
  const Profile profile = profiling.Measure({{LayerKey(profiling.task, 0), known}});
  EXPECT_EQ(profile.layers[0], known);
  EXPECT_EQ(*runs, 0);
  EXPECT_GT(profile.layers[1].forward, 0);
}

// Four busy threads per core leave the measuring thread about a fifth of a core.
TEST(Profiler, TellsThatOthersHadTheProcessor) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<bool> stop = false;
  std::vector<std::jthread> spinning;
  for (unsigned i = 0; i < 4 * cores; ++i) {
    spinning.emplace_back([&] {
      while (!stop) continue;
    });
  }
  Profiling profiling({ScriptedLayer(0)});
  profiling.script.layers[0] = [](auto&, const Tensors& inputs, const Pass&) {
    at::Tensor sum = inputs[0];
    for (int i = 0; i < 5'000; ++i) sum = sum + 1;
    return Tensors{sum};
  };
  profiling.Measure();
  stop = true;
  EXPECT_LT(profiling.least_share, 0.9);
  EXPECT_GT(profiling.least_share, 0);
}

/// `count` layers, each with its own key.
std::vector<LayerSpec> ManyLayers(int count) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < count; ++i) {
    layers.push_back(ScriptedLayer(i));
    layers.back().forward.digest = std::to_string(i);
  }
  return layers;
}

TEST(Profiler, TellsWhatItKnowsBeforeItIsDone) {
  Profiling profiling(ManyLayers(30));
  for (int i = 0; i < 30; ++i) profiling.Count(i);
  const Profile profile = profiling.Measure();
  ASSERT_GE(profiling.measured.size(), 2u);
  KnownSeconds all;
  for (KnownSeconds& some : profiling.measured) all.merge(some);
  EXPECT_EQ(all.size(), 30u);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(all.at(LayerKey(profiling.task, i)), profile.layers[i]);
    EXPECT_GT(profile.layers[i].forward, 0);
  }
  EXPECT_GT(profile.update, 0);

  profiling.measured.clear();
  EXPECT_EQ(profiling.Measure(all).layers, profile.layers);
  EXPECT_TRUE(profiling.measured.empty()) << "nothing was left to measure";
}

TEST(Profiler, ATimeLimitLeavesOutRoundsThatWouldNotEnd) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 30; ++i) layers.push_back(Make("Dropout", {0.01 * i}));
  Profiling profiling(layers);
  profiling.task.most_seconds = 1e-9;
  const Profile begun = profiling.Measure();
  ASSERT_EQ(begun.layers.size(), 30u);
  ASSERT_EQ(profiling.measured.size(), 1u);
  const KnownSeconds known = profiling.measured[0];
  EXPECT_LT(known.size(), 30u);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(begun.layers[i].forward > 0, i < known.size()) << i;
  }
  EXPECT_EQ(begun.update, 0);
  profiling.task.most_seconds = 3600;
  const Profile whole = profiling.Measure(known);
  for (const PassSeconds& layer : whole.layers) EXPECT_GT(layer.forward, 0);
  EXPECT_EQ(whole.layers[0], begun.layers[0]);
  EXPECT_GT(whole.update, 0);
}

TEST(Profiler, WhatWasMeasuredBeforeAnErrorIsTold) {
  Profiling profiling(ManyLayers(30));
  for (int i = 0; i < 29; ++i) profiling.Count(i);
  profiling.script.layers[29] = [](auto&, const Tensors&, const Pass&) -> Tensors {
    throw ConfigError("net.lua:5: no such thing");
  };
  EXPECT_THROW(profiling.Measure(), ConfigError);
  ASSERT_FALSE(profiling.measured.empty());
  EXPECT_TRUE(profiling.measured[0].contains(LayerKey(profiling.task, 0)));
}

TEST(Profiler, CopiesMeasureSideBySide) {
  Profiling profiling({ScriptedLayer(0)});
  std::atomic<int> inside = 0, most = 0, runs = 0;
  profiling.script.layers[0] = [&](auto&, const Tensors& inputs, const Pass&) {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    ++runs;
    --inside;
    return Tensors{inputs[0] * 2};
  };
  profiling.task.copies = 3;
  profiling.Measure();
  const int three = runs;
  EXPECT_EQ(three % 3, 0) << "each copy runs as often";
  EXPECT_GE(three, 3 * 7) << "warm-up and at least five repetitions";
  EXPECT_LE(most, 3);
}

TEST(Profiler, LeavesTheCallersThreadsAlone) {
  Profiling profiling({Make("Tanh")});
  const int before = at::get_num_threads();
  profiling.task.threads = before + 1;
  profiling.Measure();
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Profiler, FrozenWeightsHaveNoGradient) {
  Profiling profiling({Make("Linear", {4, 4})});
  profiling.job.layers[0].frozen = true;
  EXPECT_GT(profiling.Measure().layers[0].forward, 0);
}

TEST(Profiler, AnErrorOfALayerEndsAllCopies) {
  Profiling profiling({ScriptedLayer(0)});
  profiling.script.layers[0] = [](auto&, const Tensors&, const Pass&) -> Tensors {
    throw ConfigError("net.lua:5: no such thing");
  };
  profiling.task.copies = 2;
  try {
    profiling.Measure();
    FAIL() << "the layer's error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no such thing"));
  }
}

}  // namespace
}  // namespace strata
