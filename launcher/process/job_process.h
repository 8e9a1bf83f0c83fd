// JobProgram and JobListener: what the processes of one job do, and what the launcher hears from
// them. The processes are
//
//   launcher     supervises and shows what the others report; without LibTorch   Supervise()
//    └ starter   evaluates the script, plans, loads the engine, forks the ranks JobProgram::Prepare
//       ├ rank 0 trains                                                          JobProgram::Run
//       └ rank 1 ...
//
// The starter has two purposes. It loads the engine once (300 ms), so that not every rank has to.
// And if the script uses up memory or time, or crashes, only the starter is affected, not the
// launcher.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/watch/flight.h"

namespace strata::launcher {

/// A process's connection to the launcher.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Sends one of the program's own messages. Its "type" must not be one of rank_process.h's.
  virtual void Send(const Value& message) = 0;
};

/// A rank's connection to the launcher. Any thread may call it.
class RankReporter : public Reporter {
 public:
  /// Sets how the rank is woken when another rank has failed. `abort` is called at most once, from
  /// another thread. It must make all waits of the rank throw a WorldError with the text `why`.
  /// `position` returns what the rank is doing at the moment. Both must stay callable until the
  /// next OnAbort(). If a rank has no `abort` when another one fails, it has 0.3 s to set one or to
  /// throw; then its process is ended.
  virtual void OnAbort(std::function<void(const std::string& why)> abort,
                       std::function<std::string()> position) = 0;
  /// Sets how the rank is asked to end its work early and in good order; `stop` is called from
  /// another thread. From then on a first SIGTERM only calls `stop`, and a second signal ends the
  /// job. `stop` must stay callable until the next OnStop(). Null: the rank can no longer be asked.
  /// `save`, where given, is called likewise to ask for a save (SIGUSR1).
  virtual void OnStop(std::function<void()> stop, std::function<void()> save = {}) = 0;
  /// Sets what is called, from another thread, before the rank's flight record is read: it may note
  /// there where the rank is. It must stay callable until the next OnNote().
  virtual void OnNote(std::function<void()> note) = 0;
  /// The rings in which the ranks of this process record what they do; the launcher can read them
  /// at any time.
  virtual std::span<FlightRing> flight() const = 0;
  /// Reports that the work ends early because some rank was asked to stop. Then the job's exit code
  /// is 143, even if this rank's launcher got no signal.
  virtual void Stopped() = 0;
};

/// The largest number of ranks of a job.
inline constexpr int kMostRanks = 1 << 20;

/// Which ranks of a job this launcher starts: all, unless an outside launcher (torchrun, mpirun and
/// the like) starts the rest.
struct RankRange {
  int first = 0;
  int count = 1;
  int world_size = 1;
  /// The number of the job's ranks that are threads of each process; above 1 there is one process.
  int threads = 1;
  /// The role of each of these ranks, for the user: "stage 1, replica 0". May be empty.
  std::vector<std::string> roles = {};
};

/// What a job's processes do. The object is made in the launcher; fork() copies it into the
/// starter, and from there into the ranks.
class JobProgram {
 public:
  virtual ~JobProgram() = default;
  /// Called once in the starter. Prepares all that the ranks share, and returns which ranks to
  /// start. It must not leave a thread running, since fork() follows. If it throws Error, the error
  /// is shown and no rank starts.
  virtual RankRange Prepare(Reporter& reporter) = 0;
  /// Called in a process after its children were forked; closes what only they need, such as the
  /// store's socket.
  virtual void OnForked() {}
  /// Called in each rank's process; does its work. If it throws Error, the job ends with it.
  virtual void Run(int rank, RankReporter& reporter) = 0;
};

/// Receives what the processes report. Supervise() makes all calls on its own thread.
class JobListener {
 public:
  static constexpr int kStarter = -1;  ///< stands for the starter where a rank is expected
  virtual ~JobListener() = default;
  /// One of the program's own messages. An Error thrown here ends the job; for a WorldError ranks
  /// that can save do so first.
  virtual void OnMessage(int rank, const Value& message) = 0;
  /// A line that a rank wrote to its standard output or standard error.
  virtual void OnOutput(int rank, bool is_error, std::string_view line) = 0;
  /// A file cannot be written: from now on messages are shown but not written to files.
  virtual void StopFiles() {}
};

}  // namespace strata::launcher
