// Helpers for tests: short ways to write a script's job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/job/build_job.h"
#include "engine/job/data_source.h"
#include "engine/job/flags/overrides.h"
#include "engine/layers/testing_spec.h"

namespace strata {

inline RawLayer Item(LayerSpec layer) { return {RawLayer::Kind::kLayer, std::move(layer), {}}; }

inline RawLayer Items(std::vector<RawLayer> list) {
  return {RawLayer::Kind::kList, {}, std::move(list)};
}

inline RawLayer Cut() { return {RawLayer::Kind::kCut, {}, {}}; }

inline Value MapOf(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

/// A layer that is a Lua function.
inline LayerSpec FunctionLayer(const std::string& where) {
  LayerSpec spec;
  spec.type = "function";
  spec.where = where;
  spec.scripted = true;
  spec.forward = Function(where);
  return spec;
}

inline Value Digits(const std::string& split = "train") {
  return MakeDataSource("digits", {}, {{"split", split}}, "net.lua:9");
}

/// The argument of strata.job{...} with these keys and four layers.
inline RawJob SmallJob(Value::Map keys = {}) {
  RawJob raw;
  raw.script = "models/net.lua";
  raw.where = "net.lua:3";
  raw.keys = Value::MakeMap(std::move(keys));
  raw.layers = Items({Item(Layer("Flatten")), Item(Layer("Linear", {64, 32})), Item(Layer("ReLU")),
                      Item(Layer("Linear", {32, 10}))});
  raw.loss = Layer("CrossEntropyLoss");
  return raw;
}

inline Job Build(Value::Map keys = {}, const Value& overrides = {}) {
  return BuildJob(SmallJob(std::move(keys)), overrides);
}

}  // namespace strata
