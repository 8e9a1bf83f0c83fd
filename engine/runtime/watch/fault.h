// Fault: a signal that a rank sends itself at an action named by $STRATA_FAULT, to show what a job
// does when a rank dies or hangs there. Torch-free.
#pragma once

#include <optional>
#include <string>

namespace strata {

/// The action of a rank before it first meets the other ranks, which wait for it.
inline constexpr const char* kStartAction = "START";

struct Fault {
  int rank = 0;
  std::string action;  ///< as in positions (progress.h): "0F3", "1REDUCE_GRAD", "START"
  int signal = 0;

  /// Called when a rank begins the action `what`: sends this process the signal if it is `action`.
  void Reach(const std::string& what) const;
};

/// Parses "RANK:ACTION" (the signal is SIGKILL) or "RANK:ACTION:SIGNAL" with KILL, STOP, SEGV or
/// TERM. Throws ConfigError for other texts.
Fault ParseFault(const std::string& text);

/// The fault that $STRATA_FAULT asks of this rank, if any. Throws ConfigError on every rank if the
/// text is wrong.
std::optional<Fault> FaultOf(int rank);

}  // namespace strata
