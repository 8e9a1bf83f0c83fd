// Conversion between Lua values and the arguments and results of torch's operators, as an
// operator's schema declares them. Internal to lua/tensors/.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <lua.hpp>
#include <optional>
#include <string>

namespace strata::lua {

/// The value at `index` in the form of the argument; none when it does not have the argument's
/// type. It does not convert between Lua's kinds: a boolean is never a number, for example. A
/// string is a dtype only if a dtype of that name exists.
std::optional<c10::IValue> ToArgument(lua_State* L, int index, const c10::Argument& argument);

/// Whether several values in a row may stand for this argument: a list of integers or tensors.
bool IsCollectable(const c10::Argument& argument);
/// Those at stack indices first..last as that list; nothing when one is no element of it.
std::optional<c10::IValue> Collect(lua_State* L, int first, int last,
                                   const c10::Argument& argument);

/// The argument as PyTorch's signatures show it: "int[2] kernel_size".
std::string ArgumentText(const c10::Argument& argument);

/// Pushes an operator's result and returns the number of pushed values. A tuple is several values.
int PushResult(lua_State* L, const c10::IValue& value);

}  // namespace strata::lua
