// ScriptHost: calls a state's Lua functions, for callers that do not use Lua. Internal to lua/.
#pragma once

#include "engine/data/data_script.h"
#include "engine/layers/script.h"
#include "lua/core/state.h"

namespace strata::lua {

/// Calls with plain values run here. Calls that need tensors load the engine, whose implementation
/// of Script runs them.
class ScriptHost : public Script, public DataScript {
 public:
  explicit ScriptHost(State& state) : state_(state) {}
  Value Call(const FunctionRef& function, const Value::List& arguments) override;
  Value CallInTraining(const FunctionRef& function, const Value::List& arguments) override;
  void BeginPlan() override;
  std::vector<std::string> TakeNotes() override;
  TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) override;
  std::optional<LayerMemory> MeasureMemory(const LayerSpec& layer,
                                           const TensorSpecs& inputs) override;
  FirstBatch InferData(const FunctionRef& function, int64_t job_seed) override;
  void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
               const TensorSpecs& target) override;
  PlainSample Get(const FunctionRef& function, int64_t index, uint64_t seed) override;
  PlainSample GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                       uint64_t seed) override;
  PlainSample Map(const FunctionRef& function, const PlainSample& sample, uint64_t seed) override;
  bool Keeps(const FunctionRef& function, const PlainSample& sample, uint64_t seed) override;

 private:
  Script& WithTensors();
  DataScript& OnSamples();

  State& state_;
};

}  // namespace strata::lua
