// The call stack of a running script, for reports of hangs.
#pragma once

#include <cstddef>
#include <string>

struct lua_State;

namespace strata::lua {

/// The call stack of the script that the thread `thread` (a gettid(); 0: any thread) of this
/// process runs. The innermost call comes first, one call a line: "  net.lua:14 in forward". Call
/// it from another thread; it waits up to 0.1 s for the script's thread to answer. Returns "" if
/// the thread runs no script, or stays in a C function for that time.
std::string ScriptCalls(int thread);

/// Writes the calling thread's call stack, in the same form, into `text` and returns the number of
/// bytes written. Works only while an OutsideScript lives on this thread, then also in a signal
/// handler; otherwise it writes nothing.
size_t CallsHere(char* text, size_t size);

/// Marks a part of a script's call in which this thread does not touch the Lua state, such as an
/// operator of tensors. While the object lives, the state does not change, so a report may read it.
/// It costs two writes to memory.
class OutsideScript {
 public:
  /// `L` is the state that called; null marks the reverse, a part in which a script may run again.
  explicit OutsideScript(lua_State* L);
  ~OutsideScript();
  OutsideScript(const OutsideScript&) = delete;
  OutsideScript& operator=(const OutsideScript&) = delete;

 private:
  lua_State* const before_;
};

/// Called by the hook: publishes this thread's call stack if ScriptCalls() is waiting for it.
void AnswerCalls(lua_State* L);

/// While at least one object lives, a script may be running, so ScriptCalls() waits for its answer.
class MayRunScript {
 public:
  MayRunScript();
  ~MayRunScript();
  MayRunScript(const MayRunScript&) = delete;
  MayRunScript& operator=(const MayRunScript&) = delete;
};

}  // namespace strata::lua
