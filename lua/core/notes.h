// Notes beside values: what help() says of them, the fields that they take, the type that they
// give. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"

namespace strata::lua {

/// The registry's function that lists the names of strata.F, for completion. Until there are
/// tensors it loads the engine.
inline constexpr char kOperatorNames[] = "strata.operator_names";

/// The registry's function that tells of an operator, (function or name) -> text or nil; set by the
/// engine.
inline constexpr char kOperatorHelp[] = "strata.operator_help";
/// The one that tells what an operator's function gives, (function) -> type (object.h) or nil.
inline constexpr char kOperatorResult[] = "strata.operator_result";

/// Pushes what that function of the registry answers to the value at `index`; false, and nothing
/// pushed, where there is no answer or no such function.
bool PushAnswer(lua_State* L, const char* function, int index);

/// The names of strata.F, by the function of kOperatorNames.
std::vector<std::string> OperatorNames(lua_State* L);

/// Notes what help() says of the function, table or object at `index`.
void NoteHelp(lua_State* L, int index, std::string_view text);
/// What was noted; "" where nothing was.
std::string NotedHelp(lua_State* L, int index);

/// Notes the fields of the table that the function or callable table at `index` takes; they must
/// live as long as the process.
void NoteFields(lua_State* L, int index, const FieldTable& fields);
/// What was noted; null where nothing was.
const FieldTable* NotedFields(lua_State* L, int index);

/// Notes the type that calls of the function or callable table at `index` give: a GivenType<T>.
void NoteResult(lua_State* L, int index, lua_CFunction gives);
/// Pushes the type that was noted; false where none was, and then nothing.
bool PushResult(lua_State* L, int index);

}  // namespace strata::lua
