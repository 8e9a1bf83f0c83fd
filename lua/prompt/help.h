// help(x): what the prompt and scripts are told of a value. Internal to lua/.
//
// Texts stand where the things are made: functions, methods and properties have theirs beside their
// names (NamedFunction::help), types of objects (ObjectType::help), layers and keys of a job in
// their field tables, which are those of the checks. A text begins with a line "CALL: WHAT IT IS";
// lists of members show that line alone.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/fields/fields.h"
#include "engine/spec/job/job_fields.h"

namespace strata::lua {

/// The registry's function that tells of an operator, (function or name) -> text or nil; set by the
/// engine.
inline constexpr char kOperatorHelp[] = "strata.operator_help";
/// The one that tells what an operator's function gives, (function) -> type (object.h) or nil.
inline constexpr char kOperatorResult[] = "strata.operator_result";

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

/// What help() prints of the value at `index`, without a newline at the end. A string is the name
/// of a key of a job, of a layer, or of anything in the library. Throws ConfigError for a name that
/// nothing has, with the nearest.
std::string HelpOn(lua_State* L, int index);

/// What `EXPRESSION?` prints at the prompt: of `job.schedule` the key, of `plan.bounds` the field;
/// of others their value's help, for which it runs the expression. "" gives the overview.
std::string HelpOnExpression(lua_State* L, const std::string& expression);

/// The tables behind a key of a job, each with what begins it ({"sgd", ...}): those of its types,
/// of which one holds, or the only one.
std::vector<OptionTable> TablesOf(const Field& key);
/// What help() says of a key of a job: its line, and the tables that it takes.
std::string KeyHelp(const Field& key);

/// Names that help("...") knows, for completion.
std::vector<std::string> HelpTopics();

/// Notes the help of what base Lua brings. REQUIRES: the sandbox is open.
void NoteBaseHelp(lua_State* L);

}  // namespace strata::lua
