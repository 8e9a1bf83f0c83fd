// SignalQueue: the signals that end a job, and SIGCHLD, through a descriptor.
#pragma once

#include <signal.h>

#include "launcher/process/fd.h"

namespace strata::launcher {

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD come through fd() while this lives; one that is ignored, as
/// by nohup, or by a shell for what runs in the background, stays so.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue() { Restore(); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// The mask as it was before: for children.
  void Restore() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  int fd() const { return fd_.get(); }
  /// The next signal, or 0.
  int Next();

 private:
  sigset_t old_;
  Fd fd_;
};

}  // namespace strata::launcher
