// Engines of ranks that are threads, on the shadow devices: the CPU's bits, no races, and how often
// the host waits.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/spec/job/data_source.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using testing::FakeScript;
using testing::Function;
using ::testing::IsEmpty;
using testing::Make;
using testing::MapOf;

struct Model {
  const char* name;
  std::vector<LayerSpec> layers;
  Value::Map keys;
};

const Model& ModelOf(const std::string& name) {
  const Value input = MapOf({{"shape", Value::IntList({6})}});
  const auto tokens = [](const char* split) {
    return MakeDataSource("tokens", {12}, {{"length", 8}, {"samples", 64}, {"split", split}},
                          "net.lua:9");
  };
  static const std::vector<Model> models = {
      {"dense",
       {Make("Linear", {6, 32}), Make("Dropout", {0.3}), Make("ReLU", {}, {{"inplace", true}}),
        Make("LayerNorm", {32}), Make("Linear", {32, 24}), Make("GELU"), Make("Linear", {24, 5})},
       {{"input", input}, {"data", MapOf({{"train", Function(1)}})}}},
      {"images",
       {Make("Conv2d", {1, 4, 3}), Make("BatchNorm2d", {4}), Make("ReLU"), Make("MaxPool2d", {2}),
        Make("Conv2d", {4, 6, 3}), Make("ReLU"), Make("Flatten"), Make("Linear", {6, 5})},
       {{"input", MapOf({{"shape", Value::IntList({1, 8, 8})}})},
        {"data", MapOf({{"train", Function(2)}})}}},
      {"tokens",
       {Make("Embedding", {12, 16}),
        Make("TransformerEncoderLayer", {16, 4},
             {{"dim_feedforward", 24}, {"batch_first", true}, {"dropout", 0.1}, {"causal", true}}),
        Make("TransformerEncoderLayer", {16, 4},
             {{"dim_feedforward", 24}, {"batch_first", true}, {"dropout", 0.0}, {"causal", true}}),
        Make("LayerNorm", {16}), Make("Linear", {16, 12})},
       {{"data", MapOf({{"train", tokens("train")}})}}}};
  for (const Model& model : models) {
    if (model.name == name) return model;
  }
  throw Error("no model " + name);
}

FakeScript Script() {
  FakeScript script;
  const auto labels = [](int64_t i) { return at::arange(8).mul(7).add(3 * i).remainder(5); };
  const auto input = [](int64_t i, at::IntArrayRef sizes) {
    return at::arange(c10::multiply_integers(sizes), at::kFloat)
        .add(31 * i)
        .mul(0.37)
        .sin()
        .view(sizes);
  };
  script.data[1] = [=](int64_t i) { return MicroBatch{{input(i, {8, 6})}, {labels(i)}}; };
  script.data[2] = [=](int64_t i) { return MicroBatch{{input(i, {8, 1, 8, 8})}, {labels(i)}}; };
  return script;
}

struct Case {
  const char* model;
  const char* schedule;
  int pipe = 1, data = 1, model_axis = 1;
  Value::Map more = {};
  int stages_per_rank = 1;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.schedule; }

Job MakeJob(const Case& c) {
  const Model& model = ModelOf(c.model);
  Value::Map keys = model.keys;
  keys.insert(keys.end(),
              {{"parallel", MapOf({{"pipe", c.pipe}, {"data", c.data}, {"model", c.model_axis}})},
               {"schedule", c.schedule},
               {"stages_per_rank", c.stages_per_rank},
               {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
               {"losses", true},
               {"steps", 4}});
  keys.insert(keys.end(), c.more.begin(), c.more.end());
  return testing::MakeJob(model.layers, Make("CrossEntropyLoss"), keys);
}

Bits TrainOn(const std::string& device, const Case& c) {
  FakeScript script = Script();
  const Job job = MakeJob(c);
  const auto engine = MakeThreadsEngine(job, PlanOn(device, job, script), script);
  return Train(*engine, 3);
}

class EngineTest : public ::testing::TestWithParam<Case> {
 protected:
  EngineTest() { Machine::Get().Reset(); }
};

TEST_P(EngineTest, HasTheCpusBitsAndNoRaces) {
  const Bits shadow = TrainOn("shadow", GetParam());
  EXPECT_EQ(shadow, TrainOn("cpu", GetParam()));
  EXPECT_THAT(Machine::Get().reports(), IsEmpty());
  for (const auto& [action, counts] : Machine::Get().counts()) {
    std::printf("%-14s launches %5ld transfers %4ld synchronisations %4ld", action.c_str(),
                counts.launches, counts.transfers, counts.synchronisations);
    for (const auto& [why, n] : counts.synchronising) std::printf("  %s %ld", why.c_str(), n);
    std::printf("\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Of, EngineTest,
                         ::testing::Values(Case{"dense", "1f1b", 1}, Case{"dense", "1f1b", 3},
                                           Case{"images", "1f1b", 2}, Case{"tokens", "1f1b", 2},
                                           Case{"dense", "gpipe", 2, 2}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return Str(c.model, "_", c.schedule, "_pipe", c.pipe, "_data", c.data,
                                      "_model", c.model_axis, "_", info.index);
                         });

}  // namespace
}  // namespace strata::shadow
