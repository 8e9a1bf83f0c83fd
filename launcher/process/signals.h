// The signals that end a job, or request something (SIGQUIT, SIGUSR1). Only the launcher handles
// them: it reads them, and SIGCHLD, from a descriptor (SignalQueue). Service managers, batch
// systems and container runtimes send signals to every process of the job, so all other processes
// ignore them.
#pragma once

#include <signal.h>

#include "launcher/process/pipes.h"

namespace strata::launcher {

/// Ignores SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGUSR1 in this process, also after exec, and in
/// the processes that it forks.
void LeaveSignalsToLauncher();

/// While an object lives, Next() reads these signals and SIGCHLD, and fd() is readable when one has
/// arrived. A signal of those that end a job stays ignored if it was ignored before (by nohup, or
/// by a shell for a background job).
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue() { Restore(); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Restores the previous signal mask; call it in forked children too.
  void Restore() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  int fd() const { return fd_.get(); }
  /// The next signal, or 0 if there is none. Does not block.
  int Next();

 private:
  sigset_t old_;
  Fd fd_;
};

}  // namespace strata::launcher
