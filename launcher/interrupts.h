// Ctrl-C for a script that runs in the launcher itself.
#pragma once

#include "lua/state.h"

namespace strata::launcher {

/// While it lives, SIGINT interrupts what the state runs, and reading from a terminal (EINTR). One
/// at a time.
class Interrupts {
 public:
  explicit Interrupts(lua::State& state);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether SIGINT has come since the last call.
  bool Take();
};

/// A descriptor that becomes readable when SIGINT comes while Interrupts live, whichever thread the
/// signal meets: what somebody polls who must not miss one between looking and waiting. Open as
/// long as the process.
int InterruptFd();

}  // namespace strata::launcher
