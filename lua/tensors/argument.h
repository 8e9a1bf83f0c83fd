// From a value of Lua to what an operator's schema wants. Internal to lua/tensors/.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <lua.hpp>
#include <optional>
#include <string>

namespace strata::lua {

/// The value at `index` as the argument, or nothing when it is not of its type. Never converts
/// between kinds that Lua tells apart (a boolean is no number, a string no dtype that nobody has).
std::optional<c10::IValue> ToArgument(lua_State* L, int index, const c10::Argument& argument);

/// Whether several values in a row may stand for this argument: a list of integers or tensors.
bool IsCollectable(const c10::Argument& argument);
/// Those at stack indices first..last as that list; nothing when one is no element of it.
std::optional<c10::IValue> Collect(lua_State* L, int first, int last,
                                   const c10::Argument& argument);

/// "int[2] kernel_size", as PyTorch's signatures write it.
std::string ArgumentText(const c10::Argument& argument);

/// Pushes a result; gives the number of values pushed (a tuple is several values).
int PushResult(lua_State* L, const c10::IValue& value);

}  // namespace strata::lua
