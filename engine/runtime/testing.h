// Helpers shared by the tests of the runtime: layers made of a function, a script without Lua,
// small layer specs.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/specs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/random/random.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/stage/stage.h"

namespace strata::testing {

/// A layer whose forward is a function; it may have one parameter, "weight".
class FunctionLayer : public Layer {
 public:
  using Function = std::function<Tensors(FunctionLayer&, const Tensors&, const Pass&)>;
  explicit FunctionLayer(Function function) : function_(std::move(function)) {}
  /// Shares the parameters of another layer.
  FunctionLayer(Function function, Layer& other) : FunctionLayer(std::move(function)) {
    parameters_ = other.parameters();
  }
  FunctionLayer(Function function, at::Tensor weight) : FunctionLayer(std::move(function)) {
    AddParameter("weight", weight);
  }
  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    return function_(*this, inputs, pass);
  }
  const at::Tensor& weight() const { return parameters_[0].value; }

 private:
  Function function_;
};

/// A script without Lua: every reference is looked up by its id in these maps.
class FakeScript : public EngineScript {
 public:
  std::map<int, std::function<Value(const Value::List&)>> functions;
  std::map<int, std::function<MicroBatch(int64_t)>> data;
  std::map<int, std::function<PlainSample(std::span<const int64_t>)>> samples;
  std::map<int, FunctionLayer::Function> layers;
  std::function<TensorSpecs(const TensorSpecs&)> infer = [](const TensorSpecs& x) { return x; };

  PlainSample Get(const FunctionRef& function, int64_t index, uint64_t) override {
    return samples.at(function.id)({&index, 1});
  }
  PlainSample GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                       uint64_t) override {
    return samples.at(function.id)(indices);
  }
  PlainSample Map(const FunctionRef&, const PlainSample& sample, uint64_t) override {
    return sample;
  }
  bool Keeps(const FunctionRef&, const PlainSample&, uint64_t) override { return true; }
  Value Call(const FunctionRef& function, const Value::List& arguments) override {
    return functions.at(function.id)(arguments);
  }
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs& inputs) override {
    return infer(inputs);
  }
  FirstBatch InferData(const FunctionRef& function, int64_t job_seed) override {
    const MicroBatch first = CallData(function, 0, job_seed);
    return {SpecsOf(first.input), SpecsOf(first.target), {}, {}};
  }
  void TryLoss(const LayerSpec&, const TensorSpecs&, const TensorSpecs&) override {}
  MicroBatch CallData(const FunctionRef& function, int64_t i, int64_t) override {
    return data.at(function.id)(i);
  }
  std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec) override {
    return std::make_unique<FunctionLayer>(layers.at(spec.forward.id));
  }
  std::unique_ptr<Layer> WithForward(const LayerSpec& spec, std::unique_ptr<Layer> layer) override {
    return std::make_unique<FunctionLayer>(layers.at(spec.tied_forward.id), *layer);
  }
  std::unique_ptr<Loss> BuildLoss(const LayerSpec&) override {
    throw ConfigError("no scripted losses here");
  }
};

/// A scripted layer that FakeScript::layers[id] implements.
inline LayerSpec ScriptedLayer(int id) {
  LayerSpec spec;
  spec.type = "function";
  spec.where = "net.lua:5";
  spec.scripted = true;
  spec.forward = {id, "net.lua:5", ""};
  return spec;
}

/// A reference to an entry of FakeScript::functions or FakeScript::data.
inline FunctionRef Function(int id) { return {id, "net.lua:7", "digest"}; }

inline LayerSpec Make(const std::string& type, Value::List positional = {}, Value::Map named = {}) {
  return MakeLayer(type, positional, named, {}, "net.lua:3");
}

}  // namespace strata::testing
