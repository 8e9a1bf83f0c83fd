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

namespace strata::lua {

/// What help() prints of the value at `index`, without a newline at the end. A string is the name
/// of a key of a job, of a layer, or of anything in the library. Throws ConfigError for a name that
/// nothing has, with the nearest.
std::string HelpOn(lua_State* L, int index);

/// What `EXPRESSION?` prints at the prompt: of `job.schedule` the key, of `plan.bounds` the field;
/// of others their value's help, for which it runs the expression. "" gives the overview.
std::string HelpOnExpression(lua_State* L, const std::string& expression);

/// Names that help("...") knows, for completion.
std::vector<std::string> HelpTopics();

/// Adds strata.help to the table at the top of the stack.
void AddHelp(lua_State* L);

}  // namespace strata::lua
