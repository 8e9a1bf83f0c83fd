// Conversion between Lua values and the arguments and results of torch's operators, as an
// operator's schema declares them. Internal to lua/tensors/.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <lua.hpp>
#include <optional>
#include <string>

namespace strata::lua {

/// Converts the value at `index` to the type that the operator's argument has; nothing if it has
/// another type. Lua's types are kept apart: a boolean is not a number. A string that names a dtype
/// is a dtype.
std::optional<c10::IValue> ToArgument(lua_State* L, int index, const c10::Argument& argument);

/// True if several values in a row may stand for this argument: a list of integers or tensors.
bool IsCollectable(const c10::Argument& argument);
/// Converts the values at stack indices first..last to such a list; nothing if one of them does not
/// fit.
std::optional<c10::IValue> Collect(lua_State* L, int first, int last,
                                   const c10::Argument& argument);

/// The argument in the form of PyTorch's signatures: "int[2] kernel_size".
std::string ArgumentText(const c10::Argument& argument);

/// Pushes an operator's result and returns the number of pushed values. A tuple is pushed as
/// several values.
int PushResult(lua_State* L, const c10::IValue& value);

}  // namespace strata::lua
