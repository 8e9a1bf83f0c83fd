// Verdict: finds, from how each rank ended, the one cause that the user is told. It is a pure
// function, so that every order of events can be tested.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

/// The kind of an error that all ranks found together; no single rank is its cause.
inline constexpr const char* kTrainingError = "training";
/// The same, for bits that differ between ranks.
inline constexpr const char* kCorruptionError = "corruption";
/// The exit code of such a rank, and of its job.
inline constexpr int kCorrupted = 163;

/// The error that a rank's work threw and that it reported before it ended.
struct RankError {
  std::string kind;  ///< "config", "world", "peer" (a lost connection), "training", "corruption" or
                     ///< "internal"
  std::string text;  ///< what()
  double time = 0;   ///< when it was thrown, by the machine's monotonic clock
  bool repeats_news = false;  ///< it only repeats what the rank was told about another failure
};

/// What the launcher knows about a rank.
struct RankEnd {
  std::string role;                ///< "stage 1"; "" = unknown
  bool done = false;               ///< it reported that its work is done
  std::optional<RankError> error;  ///< the error that it reported
  std::optional<int> status;       ///< its waitpid() status; none = it has not ended
  int exit_order = 0;              ///< 0 for the first rank to end, 1 for the next, ...
  bool answered_abort = false;     ///< it was alive when it was told about another's failure
  bool killed_by_us = false;       ///< it had not ended when the launcher sent SIGKILL to all
  std::string position;            ///< what it was doing when it was told or threw; "" = unknown

  /// True if it reported an error, or ended without reporting that its work is done.
  bool failed() const;
};

/// The rank whose failure caused the others. When a rank ends, its peers lose their connections,
/// and their errors may be reported before its own. So failures are ordered as follows, and among
/// equals the earliest is chosen:
///   1. a rank that vanished (ended by a signal, or exited without a reason);
///   2. a rank's own error, thrown before it was told about another's failure;
///   3. a rank's own error that arrived after it was told;
///   4. a rank that lost a peer.
/// Errors that only repeat what the rank was told, and ranks that the launcher killed, are never
/// the cause. -1 if no rank failed.
int FirstCause(const std::vector<RankEnd>& ranks);

/// The exit code of the job if this rank is the cause; see Supervise().
int ExitCode(const RankEnd& rank);

/// True if another run of the job may not have this failure. False for errors of the script or the
/// job, and for errors that all ranks found together.
bool MayPass(const RankEnd& rank);

/// The failure in one line: "rank 1 (stage 1) was ended by signal 9 (SIGKILL)...". The other ranks
/// are told the same.
std::string Summary(const RankEnd& rank, int index, int world_size);

/// The whole text for the user: the summary of the cause, and for each other rank what it was doing
/// or what error it had of its own.
std::string Explain(const std::vector<RankEnd>& ranks, int cause);

/// "signal 9 (SIGKILL)".
std::string SignalName(int signal);

}  // namespace strata::launcher
