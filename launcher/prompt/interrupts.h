// Interrupts: Ctrl-C interrupts a script that runs in the launcher's own process (`strata repl` and
// `strata run`).
#pragma once

#include "lua/core/state.h"

namespace strata::launcher {

/// While an object lives, SIGINT interrupts the Lua code that runs in `state`, and system calls
/// such as reading from a terminal (EINTR). A second SIGINT that finds the same code still running,
/// in a search for a pattern, say, ends the process. At most one object may live at a time.
class Interrupts {
 public:
  explicit Interrupts(lua::State& state);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// True when SIGINT has come since the last call.
  bool Take();
};

/// An eventfd that becomes readable when SIGINT comes while an Interrupts lives. Code that polls
/// this descriptor cannot miss a signal that comes just before the poll, or that another thread
/// gets. The descriptor stays open until the process ends.
int InterruptFd();

}  // namespace strata::launcher
