// Helpers for C++ functions that Lua calls. Internal to lua/.
//
//   int Rank(lua_State* L) {            // check, call, translate, return
//     const Topology& topology = Self<Topology>(L);
//     lua_pushinteger(L, topology.Rank(...));
//     return 1;
//   }
//   lua_pushcfunction(L, Bound<Rank>);
//
// A body may throw strata's exceptions and may call functions that raise Lua errors: LuaJIT unwinds
// the C++ stack, so destructors run. It must not use catch (...), which would swallow Lua errors.
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

/// The registry key of the library's table.
inline constexpr char kLibrary[] = "strata.library";

using Body = int (*)(lua_State*);

/// Runs `body` and turns an exception into a Lua error at the caller's line: a C++ exception that
/// passed through Lua would lose its text. `most` is the number of arguments that the body reads. A
/// table after these is an error, since it would hold options that are not read. With -1 the body
/// reads all arguments.
int RunBody(lua_State* L, Body body, int most);

/// The lua_CFunction of a body. `most` includes the object of a method.
template <Body kBody, int most = -1>
int Bound(lua_State* L) {
  return RunBody(L, kBody, most);
}

struct NamedFunction {
  const char* name;
  lua_CFunction function;
  /// The text of help(): "strata.read(path): a file's text", then any further lines.
  const char* help = "";
  /// The fields of the table that the function takes, for completion; null if it takes none.
  const FieldTable& (*fields)() = nullptr;
  /// Pushes the type of the function's result, such as GivenType<Plan>, so that a chained call can
  /// be completed. Null if the result is not an object of ours or its type is only known at run
  /// time.
  lua_CFunction gives = nullptr;
};

/// Adds functions to the table at the top of the stack and registers their help.
void SetFunctions(lua_State* L, std::span<const NamedFunction> functions);

/// Makes reading an unknown name of the table at the top of the stack call `function`(table, name).
void SetUnknownName(lua_State* L, lua_CFunction function);
/// Makes reading an unknown name an error: "there is no PREFIXname", followed by the nearest name,
/// or by all names if none is near and there are few.
void RefuseUnknownNames(lua_State* L, std::string_view prefix);

void PushText(lua_State* L, std::string_view text);
/// The text of a string. REQUIRES: a string at `index`; the view lives as long as it is there.
std::string_view TextAt(lua_State* L, int index);

/// Each of these reads an argument and throws ConfigError "expected WHAT, got ..." if it has
/// another type. An integer must have no fraction and fit into int64.
std::string TextArgument(lua_State* L, int index, std::string_view what);
int64_t IntArgument(lua_State* L, int index, std::string_view what);
double NumberArgument(lua_State* L, int index, std::string_view what);
void CheckFunction(lua_State* L, int index, std::string_view what);

/// Shortens another library's error message for users: LibTorch's messages end with a back-trace of
/// kilobytes. At most a few lines are kept.
std::string ForeignText(std::string_view text);

/// Describes the value at `index` for messages: "the number 3.5", "a list of 3", "a layer",
/// "nothing".
std::string Describe(lua_State* L, int index);
[[noreturn]] void ThrowExpected(lua_State* L, int index, std::string_view what);

}  // namespace strata::lua
