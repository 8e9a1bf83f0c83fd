// What runs inside the processes that the launcher starts, which are the starter and the ranks; and
// the types of their messages.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/value.h"
#include "launcher/process/channel.h"
#include "launcher/process/job_process.h"

namespace strata::launcher {

/// The types of these processes' messages, with the sender and the other entries. The messages of a
/// JobProgram have other types.
inline constexpr const char* kRankStarted = "rank started";  ///< starter: rank, ranks, role; with
                                                             ///< the rank's channel, stdout, stderr
                                                             ///< and memory of flight records
inline constexpr const char* kRankExited = "rank exited";    ///< starter: rank, status
inline constexpr const char* kError = "error";  ///< all: kind, text, time, repeats_news; a rank
                                                ///< also: position
inline constexpr const char* kDone = "done";    ///< rank
inline constexpr const char* kPosition = "position";    ///< rank: text
inline constexpr const char* kAbort = "abort";          ///< to a rank: why
inline constexpr const char* kStoppable = "stoppable";  ///< rank: it can be asked to stop; saves
inline constexpr const char* kStop = "stop";            ///< to a rank
inline constexpr const char* kSave = "save now";        ///< to a rank
inline constexpr const char* kNote = "note";            ///< to a rank: a request for its position
inline constexpr const char* kNoted = "noted";          ///< rank: text
inline constexpr const char* kStopped = "stopped";  ///< rank: it ends early because it was asked to

/// A message of the type kError with the current time.
Value ErrorMessage(const char* kind, const std::string& text);

/// The main function of the starter: prepares the job, forks the ranks and reports their ends. Call
/// it in the child right after fork(). `launcher` is its parent.
[[noreturn]] void RunStarter(JobProgram& program, Fd channel, pid_t launcher);

}  // namespace strata::launcher
