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

}  // namespace strata::launcher
