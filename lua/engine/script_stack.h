// Where the script is that the engine has called: for reports of hangs. Internal to lua/engine/.
#pragma once

#include <lua.hpp>
#include <string>

namespace strata::lua {

/// While one lives, its thread runs a function of the script in this coroutine.
class InScript {
 public:
  explicit InScript(lua_State* L);
  ~InScript();
  InScript(const InScript&) = delete;
  InScript& operator=(const InScript&) = delete;

 private:
  lua_State* const before_;
  const int thread_before_;
};

/// The calls of the script that the engine has called on this thread (0: on any), and that has not
/// returned, the innermost first, a line each: "  net.lua:14 in forward". "" where none runs. From
/// any other thread; takes a moment. The script goes on afterwards.
std::string ScriptStack(int thread);

}  // namespace strata::lua
