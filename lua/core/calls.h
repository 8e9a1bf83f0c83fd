// Where a script is that does not return: for reports of hangs.
#pragma once

#include <string>

struct lua_State;

namespace strata::lua {

/// The calls of the script that this thread of the process runs (its gettid(); 0: any thread), the
/// innermost first, a line each: "  net.lua:14 in forward". For any other thread; waits for up to
/// 0.1 s. "" where the thread runs no script, or is in a C function all that time.
std::string ScriptCalls(int thread);

/// For the hook: answers whoever has asked.
void AnswerCalls(lua_State* L);

/// While one lives, a script may run, and who asks waits for its answer.
class MayRunScript {
 public:
  MayRunScript();
  ~MayRunScript();
  MayRunScript(const MayRunScript&) = delete;
  MayRunScript& operator=(const MayRunScript&) = delete;
};

}  // namespace strata::lua
