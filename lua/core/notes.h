// Notes: data that the registry keeps about values: their help() text, the fields they take, the
// type of their result. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"

namespace strata::lua {

/// The registry key of the function that lists the names of strata.F, for completion. Before
/// tensors are installed, that function loads the engine.
inline constexpr char kOperatorNames[] = "strata.operator_names";

/// The registry key of the function that returns an operator's help, (function or name) -> text or
/// nil; the engine sets it.
inline constexpr char kOperatorHelp[] = "strata.operator_help";
/// The registry key of the function that returns the type of an operator's result, (function) ->
/// type (object.h) or nil.
inline constexpr char kOperatorResult[] = "strata.operator_result";

/// Calls the registry's `function` with the value at `index` and pushes its result. False, and
/// nothing is pushed, if the result is nil or there is no such function.
bool PushAnswer(lua_State* L, const char* function, int index);

/// The names of strata.F, from the function of kOperatorNames.
std::vector<std::string> OperatorNames(lua_State* L);

/// Sets the help() text of the function, table or object at `index`.
void NoteHelp(lua_State* L, int index, std::string_view text);
/// The text that NoteHelp() set; "" if there is none.
std::string NotedHelp(lua_State* L, int index);

/// Sets the fields of the table that the function or callable table at `index` takes. `fields` must
/// live as long as the process.
void NoteFields(lua_State* L, int index, const FieldTable& fields);
/// The fields that NoteFields() set; null if there are none.
const FieldTable* NotedFields(lua_State* L, int index);

/// Sets the result type of the function or callable table at `index`; `gives` is a GivenType<T>.
void NoteResult(lua_State* L, int index, lua_CFunction gives);
/// Pushes the type that NoteResult() set. False, and nothing is pushed, if there is none.
bool PushResult(lua_State* L, int index);

}  // namespace strata::lua
