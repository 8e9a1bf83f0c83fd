// Helpers that make jobs, data and engines for tests of engines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/job/build_job.h"
#include "engine/job/data_source.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/testing.h"
#include "engine/search/plan_job.h"

namespace strata::testing {

inline Value MapOf(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

/// Merges two lists of keys. Where both have a key, the value of `more` is used.
inline Value::Map With(Value::Map keys, const Value::Map& more) {
  Value all = MapOf(std::move(keys));
  for (const auto& [key, value] : more) all.Set(key, value);
  return all.as_map();
}

/// Makes a job as strata.job{...} does. `keys` override the defaults of the tests: one thread, 4
/// micro-batches of 8 rows, cuts by parameters, 1f1b.
inline Job MakeJob(const std::vector<LayerSpec>& layers, const LayerSpec& loss,
                   const Value::Map& keys) {
  RawJob raw;
  raw.where = "net.lua:1";
  raw.layers.kind = RawLayer::Kind::kList;
  for (const LayerSpec& layer : layers) {
    raw.layers.list.push_back({RawLayer::Kind::kLayer, layer, {}});
  }
  raw.loss = loss;
  const Value::Map defaults = {{"name", "test"},
                               {"device", "cpu"},
                               {"transport", "threads"},
                               {"threads", 1},
                               {"partition", "parameters"},
                               {"schedule", "1f1b"},
                               {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}};
  raw.keys = MapOf(With(defaults, keys));
  return BuildJob(raw, {});
}

inline std::unique_ptr<Engine> Start(const Job& job, FakeScript& script) {
  return MakeThreadsEngine(job, PlanJob(job, {}, &script), script);
}

/// A network with dropout, for 6 inputs and 5 classes.
inline std::vector<LayerSpec> DropoutNet() {
  return {Make("Linear", {6, 32}), Make("Dropout", {0.3}),   Make("ReLU", {}, {{"inplace", true}}),
          Make("LayerNorm", {32}), Make("Linear", {32, 24}), Make("GELU"),
          Make("Linear", {24, 5})};
}

/// Micro-batch i for DropoutNet().
inline MicroBatch Rows(int64_t i, int64_t rows = 8) {
  const at::Tensor input = at::arange(rows * 6, at::kFloat).add(31 * i).mul(0.37).sin();
  return {{input.view({rows, 6})}, {at::arange(rows).mul(7).add(3 * i).remainder(5)}};
}

/// The same data as images of 2 by 3.
inline MicroBatch ImageRows(int64_t i) {
  MicroBatch batch = Rows(i);
  batch.input[0] = batch.input[0].view({8, 1, 2, 3});
  return batch;
}

/// A script whose data function 1 is `data`.
inline FakeScript ScriptOf(std::function<MicroBatch(int64_t)> data) {
  FakeScript script;
  script.data[1] = std::move(data);
  return script;
}
inline FakeScript RowsScript() {
  return ScriptOf([](int64_t i) { return Rows(i); });
}

/// A network with a BatchNorm, trained on synthetic images: `samples` to train, 45 to test.
inline Job ImageJob(int samples, Value::Map keys) {
  const auto images = [](const char* split, int count) {
    return MakeDataSource("images", {},
                          {{"shape", Value::IntList({1, 4, 4})},
                           {"classes", 5},
                           {"samples", count},
                           {"split", split}},
                          "net.lua:9");
  };
  keys.emplace_back("data",
                    MapOf({{"train", images("train", samples)}, {"test", images("test", 45)}}));
  return MakeJob({Make("Conv2d", {1, 4, 3}, {{"padding", 1}}), Make("BatchNorm2d", {4}),
                  Make("ReLU"), Make("Flatten"), Make("Linear", {64, 5})},
                 Make("CrossEntropyLoss"), keys);
}

}  // namespace strata::testing
