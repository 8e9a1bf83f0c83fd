// Fault: a signal that a rank sends itself where $STRATA_FAULT says, so that anybody can see what a
// job does when a rank dies or hangs there. Torch-free.
#pragma once

#include <optional>
#include <string>

namespace strata {

/// What a rank is at before it meets the others: they wait for it.
inline constexpr const char* kStartAction = "START";

struct Fault {
  int rank = 0;
  std::string action;  ///< as positions show it (progress.h): "0F3", "1REDUCE_GRAD", "START"
  int signal = 0;

  /// To be called where a rank begins with something: sends this process the signal if that is the
  /// action.
  void Reach(const std::string& what) const;
};

/// "RANK:ACTION", whose signal is SIGKILL, or "RANK:ACTION:SIGNAL" with KILL, STOP, SEGV or TERM.
/// Throws ConfigError.
Fault ParseFault(const std::string& text);

/// What $STRATA_FAULT asks of this rank. Throws ConfigError, on every rank.
std::optional<Fault> FaultOf(int rank);

}  // namespace strata
