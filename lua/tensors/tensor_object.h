// Tensors as Lua objects. Internal to lua/tensors/.
#pragma once

#include <ATen/core/Tensor.h>

#include "lua/core/bind.h"

namespace strata::lua {

template <>
struct TypeOf<at::Tensor> {
  static const ObjectType& Get();
};

/// Calls PushTensor(); for bindings.
template <>
void Push(lua_State* L, const at::Tensor& tensor);

/// Pushes the list of the operators' names, without those that begin with "_".
int ListOperators(lua_State* L);

/// Pushes the help() text of an operator; argument 1 is its function or its name. Pushes nothing
/// for other values.
int DescribeOperator(lua_State* L);
/// Pushes the type tensor if argument 1 is the function of an operator all of whose overloads
/// return one tensor; otherwise pushes nothing.
int ResultOfOperator(lua_State* L);

/// Pushes the function F.name or, if `method`, tensor:name; returns false if there is no such
/// operator. The first argument of a method is the tensor itself, named self.
bool PushOperatorFunction(lua_State* L, std::string_view name, bool method);

}  // namespace strata::lua
