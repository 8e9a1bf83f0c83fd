// SignalQueue: gets the signals that end a job, and SIGCHLD, from a descriptor instead of a
// handler.
#pragma once

#include <signal.h>

#include "launcher/process/streams/pipes.h"

namespace strata::launcher {

/// While an object lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD are read by Next(). fd() is readable
/// when one has come. A signal that was ignored before (by nohup, or by a shell for a background
/// job) stays ignored.
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
