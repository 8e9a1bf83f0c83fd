// The signals that end a job, or ask something of it (SIGQUIT, SIGUSR1). The launcher alone decides
// what they mean, and reads them, with SIGCHLD, from a descriptor (SignalQueue). A service manager,
// a batch system or a container's stop sends them to every process of the job, so the others ignore
// them.
#pragma once

#include <signal.h>

#include "launcher/process/pipes.h"

namespace strata::launcher {

/// Ignores SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGUSR1 in this process, also behind exec, and in
/// all that it forks.
void LeaveSignalsToLauncher();

/// While an object lives, these signals and SIGCHLD are read by Next(). fd() is readable when one
/// has come. One that ends and was ignored before (by nohup, or by a shell for a background job)
/// stays ignored.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue() { Restore(); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Restores the signal mask from before; also to be called in forked children.
  void Restore() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  int fd() const { return fd_.get(); }
  /// The next signal, or 0 when there is none. Does not wait.
  int Next();

 private:
  sigset_t old_;
  Fd fd_;
};

}  // namespace strata::launcher
