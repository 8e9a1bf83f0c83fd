// TensorScript's functions on samples: those of strata.dataset, of map and of filter.

#include <ATen/ops/tensor.h>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/random/random.h"
#include "lua/core/bind/binding.h"
#include "lua/core/bind/convert.h"
#include "lua/core/core.h"
#include "lua/engine/script_call.h"
#include "lua/engine/tensor_script.h"
#include "lua/tensors/plain_tensors.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

void PushHalf(lua_State* L, const PlainTensors& half) {
  const std::vector<at::Tensor> tensors = ToTensors(half);
  if (tensors.empty()) return lua_pushnil(L);
  if (tensors.size() == 1) return PushTensor(L, tensors[0]);
  lua_createtable(L, static_cast<int>(tensors.size()), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    PushTensor(L, tensors[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

/// Numbers serve as tensors of one element, as F.tensor(3) would.
PlainTensors HalfAt(lua_State* L, int index, const char* what) {
  if (lua_isnil(L, index)) return {};
  if (lua_type(L, index) != LUA_TNUMBER) return ToPlain(TensorsArgument(L, index, what));
  const double number = lua_tonumber(L, index);
  const Value value = NumberValue(number);
  const auto whole = value.is_int() ? value.as_int() : 0;
  const auto fraction = static_cast<float>(number);
  if (value.kind() == Value::Kind::kInt) {
    return {{{{}, DType::kInt64}}, {reinterpret_cast<const char*>(&whole), sizeof(whole)}};
  }
  return {{{{}, DType::kFloat32}}, {reinterpret_cast<const char*>(&fraction), sizeof(fraction)}};
}

/// Calls a function with what `push` pushes, and takes what it gives.
template <class Push, class Take>
void CallOn(State& state, const FunctionRef& function, uint64_t seed, const Push& push,
            const Take& take) {
  const RandomScope random(seed);
  RunIn(state, [&](lua_State* L) {
    PushFunction(L, function);
    const int before = lua_gettop(L);
    push(L);
    CallProtected(L, lua_gettop(L) - before, 2);
    try {
      take(L);
    } catch (const ConfigError& error) {
      throw ConfigError(Str(function.where, ": a sample: ", error.what()));
    }
  });
}

template <class Push>
PlainSample SampleOf(State& state, const FunctionRef& function, uint64_t seed, const Push& push) {
  PlainSample sample;
  CallOn(state, function, seed, push, [&](lua_State* L) {
    sample.input = HalfAt(L, 1, "the input, a tensor or a list of tensors");
    sample.target = HalfAt(L, 2, "the target, a tensor, a list of tensors or a number");
  });
  return sample;
}

void PushSampleHalves(lua_State* L, const PlainSample& sample) {
  PushHalf(L, sample.input);
  PushHalf(L, sample.target);
}

}  // namespace

PlainSample TensorScript::Get(const FunctionRef& function, int64_t index, uint64_t seed) {
  return SampleOf(state_, function, seed,
                  [index](lua_State* L) { lua_pushnumber(L, static_cast<lua_Number>(index)); });
}

PlainSample TensorScript::GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                                   uint64_t seed) {
  const at::Tensor tensor =
      at::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()), at::kLong);
  return SampleOf(state_, function, seed, [&tensor](lua_State* L) { PushTensor(L, tensor); });
}

PlainSample TensorScript::Map(const FunctionRef& function, const PlainSample& sample,
                              uint64_t seed) {
  return SampleOf(state_, function, seed, [&sample](lua_State* L) { PushSampleHalves(L, sample); });
}

bool TensorScript::Keeps(const FunctionRef& function, const PlainSample& sample, uint64_t seed) {
  bool keeps = false;
  CallOn(
      state_, function, seed, [&sample](lua_State* L) { PushSampleHalves(L, sample); },
      [&](lua_State* L) {
        if (!lua_isboolean(L, 1)) ThrowExpected(L, 1, "true or false");
        keeps = lua_toboolean(L, 1) != 0;
      });
  return keeps;
}

}  // namespace strata::lua
