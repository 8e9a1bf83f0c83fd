// Writing C++ functions that Lua calls. Internal to lua/.
//
//   int Rank(lua_State* L) {            // check, call, translate, return
//     const Topology& topology = Self<Topology>(L);
//     lua_pushinteger(L, topology.Rank(...));
//     return 1;
//   }
//   lua_pushcfunction(L, Bound<Rank>);
//
// A body may throw strata's exceptions, and may call what raises Lua's errors: LuaJIT unwinds as
// C++ does, so destructors run. It must not catch (...), which would swallow Lua's errors.
#pragma once

#include <cstdint>
#include <lua.hpp>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata::lua {

/// The registry's name of the library.
inline constexpr char kLibrary[] = "strata.library";

using Body = int (*)(lua_State*);

/// Runs `body`; an exception becomes a Lua error at the caller's line. No C++ exception crosses
/// Lua, where it would lose its text. `most` is the number of arguments that the body looks at. A
/// table behind them is an error, since it would be options that nobody reads. -1: it looks at all.
int RunBody(lua_State* L, Body body, int most);

/// The lua_CFunction of a body. `most` counts the object of a method.
template <Body kBody, int most = -1>
int Bound(lua_State* L) {
  return RunBody(L, kBody, most);
}

struct NamedFunction {
  const char* name;
  lua_CFunction function;
  /// For help(): "strata.read(path): a file's text", then any further lines.
  const char* help = "";
  /// The fields of the table that it takes, for completion; null where it takes none.
  const FieldTable& (*fields)() = nullptr;
  /// Pushes the type of what it gives, for completion behind a call: GivenType<Plan>; null where
  /// that is no object of ours, or only running it could tell.
  lua_CFunction gives = nullptr;
};

/// Sets functions in the table at the top of the stack, and notes what help() says of them.
void SetFunctions(lua_State* L, std::span<const NamedFunction> functions);

/// Makes reading a name that the table at the top of the stack lacks call `function`(table, name).
void SetUnknownName(lua_State* L, lua_CFunction function);
/// Makes it an error: "there is no PREFIXname", with the nearest name, or with all where none is
/// near and they are few.
void RefuseUnknownNames(lua_State* L, std::string_view prefix);

void PushText(lua_State* L, std::string_view text);
/// The text of a string. REQUIRES: a string at `index`; the view lives as long as it is there.
std::string_view TextAt(lua_State* L, int index);

/// Arguments. Each throws ConfigError "expected WHAT, got ..." unless the value is one; a whole
/// number has no fraction and fits an int64.
std::string TextArgument(lua_State* L, int index, std::string_view what);
int64_t IntArgument(lua_State* L, int index, std::string_view what);
double NumberArgument(lua_State* L, int index, std::string_view what);
void CheckFunction(lua_State* L, int index, std::string_view what);

/// An error of another library for users: LibTorch's ends with a back-trace of kilobytes. At most a
/// few lines are left.
std::string ForeignText(std::string_view text);

/// What stands at `index`, for messages: "the number 3.5", "a list of 3", "a layer", "nothing".
std::string Describe(lua_State* L, int index);
[[noreturn]] void ThrowExpected(lua_State* L, int index, std::string_view what);

}  // namespace strata::lua
