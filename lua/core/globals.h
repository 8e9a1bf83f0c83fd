// Globals as scripts, their modules and the prompt see them: one that nobody has set is an error,
// since `bias = flase` would else be an option that was left out. And what errors say to those who
// write Python. The same for a script's options. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The prompt's last result, which no error is about before there is one.
inline constexpr char kLastResult[] = "_";

/// From now on to read a global that nobody has set throws ConfigError with the nearest name, or
/// with what Lua writes for what Python does. It is nil where the line asks for it: `x or 3`,
/// `x and y`, `not x`, `if x then`, `x == nil`, `_G.x`; and in what load() made of a text.
void MakeGlobalsStrict(lua_State* L);

/// The same for reading a name that the options at the top of the stack lack.
void MakeOptionsStrict(lua_State* L);

/// The end of Lua's error "attempt to compare number with userdata": how tensors are compared. Else
/// "".
std::string ComparisonHint(std::string_view error);

/// All names of globals, sorted.
std::vector<std::string> GlobalNames(lua_State* L);

/// The end of a syntax error as Lua has it, "net.lua:3: 'then' expected near '!'", in `text`:
/// `; Lua writes ~= for !=` where its line looks like Python, else "".
std::string SyntaxHint(std::string_view error, std::string_view text);

}  // namespace strata::lua
