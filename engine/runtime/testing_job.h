// Jobs for the tests of engines.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/runtime/interface/engine_tensors.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/testing.h"
#include "engine/schedule/job/planned_program.h"
#include "engine/spec/job/build_job.h"

namespace strata::testing {

inline Value MapOf(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

/// strata.job{...}; the keys hold over those of the tests' defaults: one thread, 4 micro-batches
/// of 8 rows, no notices about devices.
inline Job MakeJob(const std::vector<LayerSpec>& layers, const LayerSpec& loss,
                   const Value::Map& keys) {
  RawJob raw;
  raw.where = "net.lua:1";
  raw.layers.kind = RawLayer::Kind::kList;
  for (const LayerSpec& layer : layers) {
    raw.layers.list.push_back({RawLayer::Kind::kLayer, layer, {}});
  }
  raw.loss = loss;
  raw.keys = MapOf({{"name", "test"},
                    {"device", "cpu"},
                    {"transport", "threads"},
                    {"threads", 1},
                    {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}});
  for (const auto& [key, value] : keys) raw.keys.Set(key, value);
  return BuildJob(raw, {});
}

inline std::unique_ptr<Engine> Start(const Job& job, FakeScript& script) {
  return MakeThreadsEngine(job, PlanJob(job, {}, &script), script);
}

}  // namespace strata::testing
