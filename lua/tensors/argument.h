// Conversion between Lua values and the arguments and results of torch's operators, as an
// operator's schema declares them. Internal to lua/tensors/.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <lua.hpp>
#include <optional>
#include <string>

namespace strata::lua {

/// The value at `index` as the operator takes it, or none when the argument has another type. Lua's
/// types stay apart: a boolean is no number. A string is a dtype when there is one of that name.
std::optional<c10::IValue> ToArgument(lua_State* L, int index, const c10::Argument& argument);

/// Whether several values in a row may stand for this argument: a list of integers or tensors.
bool IsCollectable(const c10::Argument& argument);
/// The values at stack indices first..last as such a list, or none when one of them does not fit.
std::optional<c10::IValue> Collect(lua_State* L, int first, int last,
                                   const c10::Argument& argument);

/// The argument as PyTorch's signatures show it: "int[2] kernel_size".
std::string ArgumentText(const c10::Argument& argument);

/// Pushes an operator's result and returns the number of pushed values. A tuple is several values.
int PushResult(lua_State* L, const c10::IValue& value);

}  // namespace strata::lua
