// strata.F, F.tensor and strata.no_grad.
#include "lua/tensors/tensors.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/layers/documents.h"
#include "engine/layers/kept_tokens.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"
#include "lua/tensors/call.h"
#include "lua/tensors/functional.h"
#include "lua/tensors/model.h"
#include "lua/tensors/tensor_files.h"
#include "lua/tensors/tensor_object.h"

namespace strata::lua {
namespace {

/// The elements of nested lists of numbers, in row-major order, and the lists' shape.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<double> elements;
  bool whole = true;
  bool boolean = true;
};

void ReadElement(lua_State* L, int index, Numbers& numbers) {
  const bool is_boolean = lua_isboolean(L, index);
  if (!is_boolean && lua_type(L, index) != LUA_TNUMBER) {
    ThrowExpected(L, index, "numbers, or lists of numbers of one length");
  }
  const double value = is_boolean ? lua_toboolean(L, index) : lua_tonumber(L, index);
  numbers.boolean = numbers.boolean && is_boolean;
  numbers.whole = numbers.whole && std::floor(value) == value && std::abs(value) <= 0x1p53;
  numbers.elements.push_back(value);
}

void ReadNested(lua_State* L, int index, size_t depth, Numbers& numbers) {
  const bool leaf = !IsPlainTable(L, index);
  const int64_t size = leaf ? 0 : ShapeOf(L, index).positions;
  const bool first = numbers.elements.empty() && numbers.shape.size() == depth;
  if (first && !leaf) numbers.shape.push_back(size);
  const bool fits = leaf ? depth == numbers.shape.size()
                         : depth < numbers.shape.size() && numbers.shape[depth] == size;
  if (!fits) {
    throw ConfigError(Str("tensor: the lists are not of one length: dim ", depth, " has ",
                          depth < numbers.shape.size() ? numbers.shape[depth] : 0, " and ", size));
  }
  if (leaf) {
    ReadElement(L, index, numbers);
    return;
  }
  luaL_checkstack(L, 4, "too many dims");
  for (int i = 1; i <= static_cast<int>(size); ++i) {
    lua_rawgeti(L, index, i);
    if (lua_isnil(L, -1))
      throw ConfigError(Str("tensor: position ", i, " of a list of ", size, " is nil"));
    ReadNested(L, lua_gettop(L), depth + 1, numbers);
    lua_pop(L, 1);
  }
}

/// F.tensor(list [, {dtype=, requires_grad=}]).
int MakeTensor(lua_State* L) {
  Numbers numbers;
  ReadNested(L, 1, 0, numbers);
  const bool empty = numbers.elements.empty();
  at::ScalarType type = empty             ? at::kFloat
                        : numbers.boolean ? at::kBool
                        : numbers.whole   ? at::kLong
                                          : at::kFloat;
  bool requires_grad = false;
  if (!lua_isnoneornil(L, 2)) {
    const Value options = ToValue(L, 2, "the options");
    for (const auto& [name, value] : options.as_map()) {
      const std::vector<std::string> known = {"dtype", "requires_grad"};
      if (name == "dtype") {
        type = ToScalarType(ParseDType(value.as_string()));
      } else if (name == "requires_grad") {
        requires_grad = value.as_bool();
      } else {
        throw ConfigError(Str("tensor has no argument \"", name, "\"", DidYouMean(name, known)));
      }
    }
  }
  at::Tensor doubles = at::empty(numbers.shape, at::kDouble);
  std::copy(numbers.elements.begin(), numbers.elements.end(), doubles.data_ptr<double>());
  at::Tensor tensor = doubles.to(FactoryDevice::Now(), type);
  if (requires_grad) tensor.set_requires_grad(true);
  PushTensor(L, tensor);
  return 1;
}

/// strata.no_grad(f, ...) calls f without recording gradients.
int NoGrad(lua_State* L) {
  CheckFunction(L, 1, "a function");
  const at::NoGradGuard guard;
  CallNested(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/// strata.positions(x): the places of the tokens of x (N, T, ...) in their texts, int64 (1, T) or,
/// of packed rows, (N, T).
int Positions(lua_State* L) {
  const at::Tensor& x = TensorArgument(L, 1, "a tensor (N, T, ...)");
  if (x.dim() < 2) {
    throw ConfigError(
        Str("strata.positions expects a tensor (N, T, ...), got ", DescribeTensor(x)));
  }
  const Documents* const documents = CurrentDocuments();
  if (!documents) {
    const int64_t begin = TokenPosition();
    const auto integers = x.options().dtype(at::kLong);
    PushTensor(L, at::arange(begin, begin + x.size(1), integers).unsqueeze(0));
    return 1;
  }
  if (x.size(0) != documents->rows() || x.size(1) != documents->tokens()) {
    throw ConfigError(Str("strata.positions expects the ", documents->rows(), " packed rows of ",
                          documents->tokens(), " tokens, (N, T, ...), got ", DescribeTensor(x)));
  }
  PushTensor(L, documents->places());
  return 1;
}

/// __index of F: the function F.name.
int FindFunction(lua_State* L) {
  const std::string name = TextArgument(L, 2, "the name of an operator");
  if (PushOperatorFunction(L, name, false)) return 1;
  throw ConfigError(WhyNoOperator(name));
}

/// __index of nn.init: the function nn.init.name.
int FindInit(lua_State* L) {
  const std::string name = TextArgument(L, 2, "the name of a function");
  if (PushOperatorFunction(L, Str(kInitPrefix, name), false)) return 1;
  throw ConfigError(Str("there is no ", kInitPrefix, name, DidYouMean(name, InitNames())));
}

}  // namespace

void OpenTensors(lua_State* L) {
  OpenFunctional(L);
  // Otherwise sparse tensors accept any index, and write to it when they are made dense.
  at::globalContext().setCheckSparseTensorInvariants(true);
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  lua_getfield(L, -1, "F");
  SetUnknownName(L, Bound<FindFunction>);
  const NamedFunction functions[] = {
      {"tensor", Bound<MakeTensor>,
       "F.tensor(list [, {dtype=, requires_grad=}]): from numbers; int64 where all are whole",
       nullptr, GivenType<at::Tensor>}};
  SetFunctions(L, functions);
  lua_pop(L, 1);
  lua_getfield(L, -1, "nn");
  lua_getfield(L, -1, "init");
  SetUnknownName(L, Bound<FindInit>);
  lua_pop(L, 2);
  lua_pushcfunction(L, Bound<ListOperators>);
  lua_setfield(L, LUA_REGISTRYINDEX, kOperatorNames);
  lua_pushcfunction(L, Bound<DescribeOperator>);
  lua_setfield(L, LUA_REGISTRYINDEX, kOperatorHelp);
  lua_pushcfunction(L, Bound<ResultOfOperator>);
  lua_setfield(L, LUA_REGISTRYINDEX, kOperatorResult);
  const NamedFunction library[] = {{"no_grad", Bound<NoGrad>, kNoGradHelp},
                                   {"positions", Bound<Positions>,
                                    "strata.positions(x): in a layer's function, the place of each "
                                    "token of x (N, T, ...) in its "
                                    "text, int64 (1, T), or (N, T) if documents are packed: "
                                    "x + F.embedding(strata.positions(x), self.weight)",
                                    nullptr, GivenType<at::Tensor>}};
  SetFunctions(L, library);
  OpenModel(L);
  OpenTensorFiles(L);
  lua_pop(L, 1);
}

}  // namespace strata::lua
