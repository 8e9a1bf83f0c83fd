// ScriptHost: calls a state's Lua functions with plain values.
#include "lua/host/script_host.h"

#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/host/engine_api.h"

namespace strata::lua {
namespace {

/// The values on the stack: several as a list, a single one as itself, none as null.
Value Results(lua_State* L) {
  if (lua_gettop(L) <= 1) return ToValue(L, 1, "the function's result");
  Value::List list;
  for (int i = 1; i <= lua_gettop(L); ++i) list.push_back(ToValue(L, i, "the function's result"));
  return list;
}

Value CallIn(Session session, const FunctionRef& function, const Value::List& arguments) {
  Value results;
  session.Run([&](lua_State* L) {
    PushFunction(L, function);
    for (const Value& argument : arguments) PushValue(L, argument);
    CallProtected(L, static_cast<int>(arguments.size()), LUA_MULTRET);
    results = Results(L);
  });
  return results;
}

}  // namespace

Value ScriptHost::Call(const FunctionRef& function, const Value::List& arguments) {
  return CallIn(Session(state_), function, arguments);
}

Value ScriptHost::CallInTraining(const FunctionRef& function, const Value::List& arguments) {
  return CallIn(Session(state_, Watch::kLoosely), function, arguments);
}

/// Nothing can have been tried before LibTorch is loaded.
void ScriptHost::BeginPlan() {
  if (state_.core().tensors) state_.core().tensors->BeginPlan();
}

std::vector<std::string> ScriptHost::TakeNotes() {
  return state_.core().tensors ? state_.core().tensors->TakeNotes() : std::vector<std::string>();
}

TensorSpecs ScriptHost::InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) {
  return WithTensors().InferShapes(layer, inputs);
}

std::optional<LayerMemory> ScriptHost::MeasureMemory(const LayerSpec& layer,
                                                     const TensorSpecs& inputs) {
  return WithTensors().MeasureMemory(layer, inputs);
}

FirstBatch ScriptHost::InferData(const FunctionRef& function, int64_t job_seed) {
  return WithTensors().InferData(function, job_seed);
}

void ScriptHost::TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                         const TensorSpecs& target) {
  WithTensors().TryLoss(loss, output, target);
}

PlainSample ScriptHost::Get(const FunctionRef& function, int64_t index, uint64_t seed) {
  return OnSamples().Get(function, index, seed);
}

PlainSample ScriptHost::GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                                 uint64_t seed) {
  return OnSamples().GetBatch(function, indices, seed);
}

PlainSample ScriptHost::Map(const FunctionRef& function, const PlainSample& sample, uint64_t seed) {
  return OnSamples().Map(function, sample, seed);
}

bool ScriptHost::Keeps(const FunctionRef& function, const PlainSample& sample, uint64_t seed) {
  return OnSamples().Keeps(function, sample, seed);
}

/// The engine's implementation of Script also implements DataScript.
DataScript& ScriptHost::OnSamples() { return dynamic_cast<DataScript&>(WithTensors()); }

Script& ScriptHost::WithTensors() {
  if (!state_.core().tensors) LoadEngine().InstallTensors(state_);
  return *state_.core().tensors;
}

}  // namespace strata::lua
