// Where a script is that does not return: for reports of hangs.
#pragma once

#include <string>

struct lua_State;

namespace strata::lua {

/// The calls of the script that runs in this process on the thread with this number of the system
/// (0: on any), the innermost first, a line each: "  net.lua:14 in forward". From any other thread;
/// waits for up to 0.1 s. "" where no script runs there, or where it is in a C function meanwhile:
/// the script itself answers, between two instructions.
std::string ScriptCalls(int thread);

/// For the hook: answers whoever has asked.
void AnswerCalls(lua_State* L);

/// While one lives, a script may run.
class MayRunScript {
 public:
  MayRunScript();
  ~MayRunScript();
  MayRunScript(const MayRunScript&) = delete;
  MayRunScript& operator=(const MayRunScript&) = delete;
};

}  // namespace strata::lua
