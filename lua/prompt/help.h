// help(x): the text about a value, for the prompt and for scripts. Internal to lua/.
//
// The texts are written where the things are defined: for functions, methods and properties in
// NamedFunction::help, for types in ObjectType::help, for layers and keys of a job in the field
// tables that also check them. A text begins with a line "CALL: WHAT IT IS"; lists of members show
// only that line.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The text that help() prints for the value at `index`, without a newline at the end. A string is
/// a name: of a key of a job, of a layer, or of anything in the library. Throws ConfigError for an
/// unknown name, with the nearest one.
std::string HelpOn(lua_State* L, int index);

/// The text that `EXPRESSION?` prints at the prompt. For `job.schedule` it is the help of the key,
/// for `plan.bounds` of the field; otherwise the expression is run and its value's help is printed.
/// "" gives the overview.
std::string HelpOnExpression(lua_State* L, const std::string& expression);

/// The names that help("...") knows, for completion.
std::vector<std::string> HelpTopics();

/// Adds strata.help to the table at the top of the stack.
void AddHelp(lua_State* L);

}  // namespace strata::lua
