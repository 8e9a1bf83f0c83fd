// The type of tensors. Internal to lua/tensors/.
#pragma once

#include <ATen/core/Tensor.h>

#include "lua/core/bind.h"

namespace strata::lua {

template <>
struct TypeOf<at::Tensor> {
  static const ObjectType& Get();
};

/// PushTensor(), for bindings.
template <>
void Push(lua_State* L, const at::Tensor& tensor);

/// Pushes the list of the operators' names, without those that begin with "_".
int ListOperators(lua_State* L);

/// (function of an operator, or its name): pushes what help() says of it; nothing for others.
int DescribeOperator(lua_State* L);
/// (function) gives the type tensor for an operator all of whose overloads give one tensor, else
/// nil.
int ResultOfOperator(lua_State* L);

/// F.name or tensor:name: pushes the function; false where there is no such operator.
/// `method`: the first argument is the tensor itself, named self.
bool PushOperatorFunction(lua_State* L, std::string_view name, bool method);

}  // namespace strata::lua
