// What the processes of one job do, and what the launcher hears of them. The processes:
//
//   launcher     supervises; free of LibTorch; shows what the others report      Supervise()
//    └ starter   evaluates the script, plans, loads the engine, forks the ranks JobProgram::Prepare
//       ├ rank 0 trains                                                          JobProgram::Run
//       └ rank 1 ...
//
// The starter exists so that the engine is loaded once (300 ms) and not by every rank, and so that
// a script which eats memory or time, or crashes, does it outside of the launcher.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata::launcher {

/// A process's line to the launcher.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Sends a message of the program's own; its "type" is any text but those of supervisor.cc.
  virtual void Send(const Value& message) = 0;
};

/// What a rank has besides. Everything is safe to call from any thread.
class RankReporter : public Reporter {
 public:
  /// Says how the rank can be woken from whatever it waits for, and where it is. `abort` is called
  /// at most once, from another thread, when another rank has failed; it makes the rank's waits
  /// throw a WorldError with the text that it gets. `position` says what the rank does right now.
  /// Both must stay callable until OnAbort is called again. A rank that has not called it, or with
  /// a null `abort`, is ended, unless it gives one or throws within 0.3 s.
  virtual void OnAbort(std::function<void(const std::string& why)> abort,
                       std::function<std::string()> position) = 0;
  /// Says that the rank can end its work early by itself, well: `stop`, called from another thread,
  /// asks for it. SIGTERM then does only that; a second signal ends everything. It must stay
  /// callable until OnStop is called again; null: it can no longer.
  virtual void OnStop(std::function<void()> stop) = 0;
  /// Says that the work ends early because this rank or another one was asked to: the job's exit
  /// code is 143, also where the signal went to another launcher.
  virtual void Stopped() = 0;
};

/// Which ranks of a job are processes here: all, unless another starter has the rest.
struct RankRange {
  int first = 0;
  int count = 1;
  int world_size = 1;
  /// What each of these ranks has, for people: "stage 1, replica 0". May be empty.
  std::vector<std::string> roles = {};
};

/// What a job's processes do. The object itself lives in the launcher and is copied by the forks.
class JobProgram {
 public:
  virtual ~JobProgram() = default;
  /// In the starter, once: makes everything ready that the ranks share, without starting a thread,
  /// and returns which ranks to start. Throws Error: it is shown once and nothing starts.
  virtual RankRange Prepare(Reporter& reporter) = 0;
  /// In each rank. Throws Error: the job ends with it.
  virtual void Run(int rank, RankReporter& reporter) = 0;
};

/// What the launcher hears. All calls come from Supervise(), on its thread.
class JobListener {
 public:
  static constexpr int kStarter = -1;  ///< where a rank is expected
  virtual ~JobListener() = default;
  /// A message of the program's own. An Error thrown here ends the job.
  virtual void OnMessage(int rank, const Value& message) = 0;
  /// A line that a rank wrote to its standard output or standard error.
  virtual void OnOutput(int rank, bool is_error, std::string_view line) = 0;
};

}  // namespace strata::launcher
