// Strict globals for scripts, their modules and the prompt: reading a global that was never set is
// an error, since a misspelt `bias = flase` would otherwise silently mean nil. The same holds for a
// script's options. The errors also suggest the Lua form to users who wrote Python. Internal to
// lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The global with the prompt's last result. Reading it before there is a result gives nil.
inline constexpr char kLastResult[] = "_";

/// From now on, reading a global that was never set throws ConfigError with the nearest name, or
/// with the Lua form of a Python word. It is still nil where the line tests for it: `x or 3`,
/// `x and y`, `not x`, `if x then`, `x == nil`, `_G.x`; and in code made by load().
void MakeGlobalsStrict(lua_State* L);

/// Does the same for the table of options at the top of the stack.
void MakeOptionsStrict(lua_State* L);

/// The text to append to Lua's error "attempt to compare number with userdata": how to compare
/// tensors. "" for other errors.
std::string ComparisonHint(std::string_view error);

/// The names of all globals, sorted.
std::vector<std::string> GlobalNames(lua_State* L);

/// The text to append to a syntax error of `text` such as "net.lua:3: 'then' expected near '!'":
/// `; Lua writes ~= for !=` if its line looks like Python, otherwise "".
std::string SyntaxHint(std::string_view error, std::string_view text);

}  // namespace strata::lua
