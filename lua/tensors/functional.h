// The functions of torch.nn.functional and torch.nn.init, with PyTorch's names, order of arguments
// and defaults. All signatures come from signatures.txt. Internal to lua/tensors/.
//
// A function without a body in functional.lua is the operator with the same name. A body is written
// in Lua. It receives the arguments after they were checked and completed by the signature. It
// calls operators, so gradients and the thread's random generator work as usual.
#pragma once

#include <ATen/core/function_schema.h>

#include <lua.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The prefix of the names of nn.init's functions.
inline constexpr std::string_view kInitPrefix = "nn.init.";

/// One line of signatures.txt.
struct Functional {
  std::string name;         ///< "cross_entropy", "nn.init.normal_"
  bool of_torch = false;    ///< a function of torch itself, which tensors have as a method too
  std::string no_function;  ///< the reason why F has no such function; "" = it has one

  std::optional<c10::FunctionSchema> schema;  ///< the arguments; nothing if there is no function
};

/// The function with exactly this name, or null. With `method`, only functions of torch itself are
/// found.
const Functional* FindFunctional(std::string_view name, bool method);
/// The names of nn.init's functions, without "nn.init.".
std::vector<std::string> InitNames();
/// All functions of F in the table, sorted by name.
std::vector<const Functional*> AllFunctionals();

/// Loads the bodies; call it once per state. REQUIRES: protected mode.
void OpenFunctional(lua_State* L);
/// Pushes the function with its body. False, and nothing is pushed, if it has no body and is just
/// the operator.
bool PushFunctional(lua_State* L, const Functional& functional);
/// The functional whose function is at `index`; null for other values.
const Functional* FunctionalAt(lua_State* L, int index);

}  // namespace strata::lua
