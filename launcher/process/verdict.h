// Verdict: from how each rank ended to the one cause that the user is told. Pure, so that every
// order of events can be tested.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

/// The kind of an error that all ranks found together: it is no rank's own.
inline constexpr const char* kTrainingError = "training";

/// What a rank said before it ended: the error that its work threw.
struct RankError {
  std::string kind;   ///< "config", "world", "peer" (a lost connection), "training" or "internal"
  std::string text;   ///< what()
  double time = 0;    ///< of the machine's monotonic clock, when it was thrown
  bool echo = false;  ///< it only repeats what the rank was told of another's failure
};

/// What the launcher knows of a rank.
struct RankEnd {
  std::string role;                ///< what it had: "stage 1"; "" when nobody said
  bool done = false;               ///< it said that its work is finished
  std::optional<RankError> error;  ///< it said what went wrong
  std::optional<int> status;       ///< its waitpid() status, once it has ended
  int exit_order = 0;              ///< 0 for the first rank to end, 1 for the next, ...
  bool answered_abort = false;     ///< it was alive when it was told of another's failure
  bool killed_by_us = false;       ///< it ended after the launcher had sent SIGKILL to all
  std::string position;            ///< where it was when it was told, or threw; "" = unknown

  /// Ended, but not in the way that finished work ends; or said that something went wrong.
  bool failed() const;
};

/// The rank whose failure came first. A rank that ends takes the connections of its peers with it,
/// so that their errors are thrown, and may be heard, before its own. Hence, of the failures that
/// there are, the first in this order, and among equals the earliest:
///   1. a rank that vanished (a signal, or an exit without a word);
///   2. an error of a rank's own, thrown before it was told of another's failure;
///   3. the same of a rank that had been told: its error was on the way when the news came;
///   4. a rank that lost a peer.
/// Never what followed from the news, nor from our own kill. -1 when none failed.
int FirstCause(const std::vector<RankEnd>& ranks);

/// The exit code that the rank's end stands for; see Supervise().
int ExitCode(const RankEnd& rank);

/// What happened, in one line: "rank 1 (stage 1) was ended by signal 9 (SIGKILL)...". What the
/// survivors are told as well.
std::string Summary(const RankEnd& rank, int index, int world_size);

/// The whole text for the user: the summary, then of each of the others where it was, or what it
/// noticed by itself.
std::string Explain(const std::vector<RankEnd>& ranks, int cause);

/// "signal 9 (SIGKILL)".
std::string SignalName(int signal);

}  // namespace strata::launcher
