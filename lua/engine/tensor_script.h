// TensorScript: calls a state's Lua functions for the engine, with tensors. Internal to lua/.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "engine/runtime/engine_script.h"
#include "lua/core/state.h"

namespace strata::lua {

/// Every call holds the state's turn while the function runs. Rank threads of one process share the
/// state, so their functional layers run one after the other.
///
/// In a call of a layer or a data function, operators draw from the thread's RandomScope, and
/// math.random from a generator seeded from it. So the numbers are the same for every partition,
/// schedule and transport.
class TensorScript : public EngineScript {
 public:
  explicit TensorScript(State& state) : state_(state) {}
  Value Call(const FunctionRef& function, const Value::List& arguments) override;
  void BeginPlan() override;
  std::vector<std::string> TakeNotes() override;
  TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) override;
  std::optional<LayerMemory> MeasureMemory(const LayerSpec& layer,
                                           const TensorSpecs& inputs) override;
  FirstBatch InferData(const FunctionRef& function, int64_t job_seed) override;
  void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
               const TensorSpecs& target) override;
  std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec) override;
  std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec) override;
  std::unique_ptr<Layer> WithForward(const LayerSpec& spec, std::unique_ptr<Layer> layer) override;
  MicroBatch CallData(const FunctionRef& function, int64_t i, int64_t job_seed) override;
  PlainSample Get(const FunctionRef& function, int64_t index, uint64_t seed) override;
  PlainSample GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                       uint64_t seed) override;
  PlainSample Map(const FunctionRef& function, const PlainSample& sample, uint64_t seed) override;
  bool Keeps(const FunctionRef& function, const PlainSample& sample, uint64_t seed) override;

 private:
  /// Runs `body`, a trial of the script's function `of` on inputs of these shapes: in a dry run,
  /// or, if the function reads values, computing everything but products on zeros.
  template <class Body>
  auto Try(const LayerSpec& of, const TensorSpecs& specs, const Body& body);

  State& state_;
  // What trials gave since the plan began, by TrialKey():
  std::map<std::string, TensorSpecs> inferred_;
  std::map<std::string, LayerMemory> measured_;
  std::set<std::string> notes_, told_;  // told_: those that TakeNotes() has given
};

}  // namespace strata::lua
