// Interrupts: Ctrl-C interrupts a script that runs in the launcher's own process (`strata repl` and
// `strata run`).
#pragma once

#include "lua/core/state.h"

namespace strata::launcher {

/// While an object lives, SIGINT interrupts the Lua code that runs in `state`. System calls such as
/// reading from a terminal end with EINTR. If a second SIGINT finds the same code still running,
/// for example in a pattern search, it ends the process. At most one object may live at a time.
class Interrupts {
 public:
  explicit Interrupts(lua::State& state);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// True if SIGINT has arrived since the last call.
  bool Take();
};

/// An eventfd that SIGINT makes readable while an Interrupts lives. A program that waits for a key
/// polls it too: poll() itself is interrupted only by a signal that comes during the call, and only
/// in the thread that gets it. The descriptor stays open until the process ends.
int InterruptFd();

}  // namespace strata::launcher
