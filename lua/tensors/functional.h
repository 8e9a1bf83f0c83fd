// torch.nn.functional, and torch.nn.init: their functions with their names, order and defaults, all
// from signatures.txt. Internal to lua/tensors/.
//
// A function without a body in functional.lua is the operator of its name. A body, in Lua, gets the
// arguments as the signature has read and filled them, and calls operators, which keep gradients
// and take the thread's generator as ever.
#pragma once

#include <ATen/core/function_schema.h>

#include <lua.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// What the names of nn.init's functions begin with.
inline constexpr std::string_view kInitPrefix = "nn.init.";

/// One line of signatures.txt.
struct Functional {
  std::string name;         ///< "cross_entropy", "nn.init.normal_"
  bool of_torch = false;    ///< torch's own, which is a method of tensors too
  std::string no_function;  ///< why there is no function of that name; "" = there is one

  std::optional<c10::FunctionSchema> schema;  ///< what it takes; nothing = there is no function
};

/// The one of that exact name, or null; null as a method too, unless it is torch's own.
const Functional* FindFunctional(std::string_view name, bool method);
/// The names of nn.init's, without "nn.init.".
std::vector<std::string> InitNames();
/// All of F's in the table, by name.
std::vector<const Functional*> AllFunctionals();

/// Loads the bodies, once per state. REQUIRES: protected mode.
void OpenFunctional(lua_State* L);
/// Pushes the function of F or nn.init; false, and nothing pushed, where the operator of its name
/// is all.
bool PushFunctional(lua_State* L, const Functional& functional);
/// The functional behind the function at `index`; null for other values.
const Functional* FunctionalAt(lua_State* L, int index);

}  // namespace strata::lua
