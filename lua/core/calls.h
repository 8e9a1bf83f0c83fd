// Where a script is that does not return: for reports of hangs.
#pragma once

#include <cstddef>
#include <string>

struct lua_State;

namespace strata::lua {

/// The calls of the script that this thread of the process runs (its gettid(); 0: any thread), the
/// innermost first, a line each: "  net.lua:14 in forward". For any other thread; waits for up to
/// 0.1 s. "" where the thread runs no script, or is in a C function all that time.
std::string ScriptCalls(int thread);

/// The same of the calling thread while an OutsideScript lives there, also in a signal's handler:
/// into `text`, as many bytes as are given back.
size_t CallsHere(char* text, size_t size);

/// While one lives, this thread does for a function of the script what does not touch the script's
/// state, such as an operator of tensors: nothing but a report may read the state, and nobody
/// changes it. It costs two writes to memory.
class OutsideScript {
 public:
  /// `L`: who calls; null where a script may run again.
  explicit OutsideScript(lua_State* L);
  ~OutsideScript();
  OutsideScript(const OutsideScript&) = delete;
  OutsideScript& operator=(const OutsideScript&) = delete;

 private:
  lua_State* const before_;
};

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
