// Calling an operator with Lua's arguments. Internal to lua/tensors/.
#pragma once

#include <ATen/core/function_schema.h>

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lua/tensors/operators.h"

namespace strata::lua {

/// The arguments of a call: stack indices, by position and by name.
struct CallArguments {
  struct Named {
    std::string name;
    int index;
  };
  std::vector<int> positional;
  std::vector<Named> named;
};

/// Those from stack index 1 to the top. A trailing table with names holds keyword arguments, and
/// perhaps positions before them: F.softmax{x, dim=1}. Their values are pushed.
CallArguments ReadArguments(lua_State* L);

/// "flatten(Tensor self, int start_dim=0, int end_dim=-1)", in Lua's words.
std::string Signature(std::string_view name, const c10::FunctionSchema& schema);

/// Calls the overload that takes the arguments with the fewest defaults left unused and pushes the
/// results; gives their number. `shown` is the operator's name as the script wrote it. Throws
/// ConfigError: an argument that does not fit (a single overload), the overloads that there are
/// (several), and what ATen says.
int CallOperator(lua_State* L, const Operator& op, const CallArguments& arguments,
                 std::string_view shown);

/// Pushes what the schema's arguments are, in its order: as given, else the default; a list of
/// fixed length as a list also where one number stood for it. Gives their number. Throws as above.
int PushFitted(lua_State* L, const c10::FunctionSchema& schema, std::string_view shown,
               const CallArguments& arguments);

}  // namespace strata::lua
