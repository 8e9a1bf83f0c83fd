// The inside of the processes that the launcher starts: the starter and the ranks.
#pragma once

#include <sys/types.h>

#include "launcher/process/channel.h"
#include "launcher/process/job_program.h"

namespace strata::launcher {

/// The messages that the processes themselves send; a program's own have other types.
inline constexpr const char* kRankStarted =
    "rank started";                                        ///< starter: rank, ranks, role; with the
                                                           ///< rank's channel, stdout and stderr
inline constexpr const char* kRankExited = "rank exited";  ///< starter: rank, status
inline constexpr const char* kError = "error";             ///< anybody: kind, text, time, echo,
                                                           ///< and where a rank was: position
inline constexpr const char* kDone = "done";               ///< rank
inline constexpr const char* kPosition = "position";       ///< rank: text
inline constexpr const char* kAbort = "abort";             ///< to a rank: why
inline constexpr const char* kStoppable = "stoppable";     ///< rank: a stop would be heard
inline constexpr const char* kStop = "stop";               ///< to a rank
inline constexpr const char* kStopped = "stopped";         ///< rank: it ends early, as asked

/// The starter's whole life: prepares, forks the ranks, tells of their ends. To be called in the
/// child right after fork(); `launcher` is its parent.
[[noreturn]] void RunStarter(JobProgram& program, Fd channel, pid_t launcher);

/// Seconds of the machine's monotonic clock; the same for all processes.
double MonotonicSeconds();

}  // namespace strata::launcher
