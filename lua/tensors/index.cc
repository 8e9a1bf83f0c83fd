// Indexing of tensors: x[...] and x[...] = v.
#include "lua/tensors/index.h"

#include <ATen/TensorIndexing.h>

#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

using at::indexing::TensorIndex;

constexpr char kPosition[] =
    "a whole number, a range {start, stop, step}, a tensor of integers or booleans, or \"...\"";

/// Reads a range {start, stop, step}; each of the three may be left out.
TensorIndex Range(lua_State* L, int index) {
  const TableShape shape = ShapeOf(L, index);
  if (!shape.names.empty() || shape.positions > 3) ThrowExpected(L, index, kPosition);
  std::optional<c10::SymInt> numbers[3];
  for (int i = 0; i < shape.positions; ++i) {
    lua_rawgeti(L, index, i + 1);
    const int top = lua_gettop(L);
    if (!lua_isnil(L, top)) numbers[i] = IntArgument(L, top, "a whole number in the range");
    lua_pop(L, 1);
  }
  return at::indexing::Slice(numbers[0], numbers[1], numbers[2]);
}

TensorIndex Position(lua_State* L, int index) {
  if (const at::Tensor* tensor = TensorAt(L, index)) return *tensor;
  if (lua_type(L, index) == LUA_TNUMBER) return IntArgument(L, index, "a whole number");
  if (IsPlainTable(L, index)) return Range(L, index);
  if (lua_type(L, index) == LUA_TSTRING && TextAt(L, index) == "...") return at::indexing::Ellipsis;
  ThrowNoTensor(L, index, kPosition);
}

std::vector<TensorIndex> Positions(lua_State* L, int key) {
  if (!IsPlainTable(L, key)) return {Position(L, key)};
  const TableShape shape = ShapeOf(L, key);
  if (!shape.names.empty()) ThrowExpected(L, key, "a position for each dim");
  std::vector<TensorIndex> positions;
  for (int i = 1; i <= shape.positions; ++i) {
    lua_rawgeti(L, key, i);
    if (lua_isnil(L, -1)) {
      throw ConfigError(Str("position ", i, " is nil; {} is all of a dim, and x:unsqueeze(dim) ",
                            "does what None does"));
    }
    positions.push_back(Position(L, lua_gettop(L)));
    lua_pop(L, 1);
  }
  if (positions.empty()) return {at::indexing::Ellipsis};
  return positions;
}

/// Runs `body`; LibTorch's errors about positions get the tensor's description.
template <class Body>
auto Checked(const at::Tensor& tensor, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    throw ConfigError(
        Str("x[...] of ", DescribeTensor(tensor), ", which counts from 0: ", ErrorText(error)));
  }
}

}  // namespace

at::Tensor GetElements(lua_State* L, const at::Tensor& tensor, int key) {
  return Checked(tensor, [&] { return tensor.index(Positions(L, key)); });
}

void SetElements(lua_State* L, const at::Tensor& tensor, int key, int value) {
  at::Tensor target = tensor;  // the same elements; index_put_ is no const member
  if (const at::Tensor* source = TensorAt(L, value)) {
    Checked(tensor, [&] { return target.index_put_(Positions(L, key), *source); });
    return;
  }
  const bool is_boolean = lua_isboolean(L, value);
  const at::Scalar number = is_boolean
                                ? at::Scalar(lua_toboolean(L, value) != 0)
                                : at::Scalar(NumberArgument(L, value, "a number or a tensor"));
  Checked(tensor, [&] { return target.index_put_(Positions(L, key), number); });
}

}  // namespace strata::lua
