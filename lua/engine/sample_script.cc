// TensorScript's functions that work on samples: those for strata.dataset, map and filter.

#include <ATen/ops/tensor.h>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/random/random.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/engine/script_call.h"
#include "lua/engine/tensor_script.h"
#include "lua/tensors/plain_tensors.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

/// A number as the tensor that F.tensor(3) would make.
PlainTensors PlainNumber(double number) {
  const Value value = NumberValue(number);
  const auto whole = value.is_int() ? value.as_int() : 0;
  const auto fraction = static_cast<float>(number);
  if (value.kind() == Value::Kind::kInt) {
    return {{{{}, DType::kInt64}}, {reinterpret_cast<const char*>(&whole), sizeof(whole)}};
  }
  return {{{{}, DType::kFloat32}}, {reinterpret_cast<const char*>(&fraction), sizeof(fraction)}};
}

/// Reads an input or a target. Numbers, also those in a list, become tensors of one element.
PlainTensors HalfAt(lua_State* L, int index, const char* what) {
  if (lua_isnil(L, index)) return {};
  if (lua_type(L, index) == LUA_TNUMBER) return PlainNumber(lua_tonumber(L, index));
  if (!IsPlainTable(L, index) || lua_objlen(L, index) == 0) {
    return ToPlain(TensorsArgument(L, index, what));
  }
  lua_newtable(L);
  const int tensors = lua_gettop(L);
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    if (lua_type(L, -1) == LUA_TNUMBER) {
      PushHalf(L, PlainNumber(lua_tonumber(L, -1)));
      lua_remove(L, -2);
    }
    lua_rawseti(L, tensors, i);
  }
  return ToPlain(TensorsArgument(L, tensors, what));
}

/// Calls a function with the values that `push` pushes, and gives its results to `take`.
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
