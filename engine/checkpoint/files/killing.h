// KilledBefore(): a process that dies before it changes the disk once more; for tests.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "engine/checkpoint/files/disk_log.h"

namespace strata {

/// Runs `work` in a process of its own, which SIGKILL ends before its call number `count` (from 0)
/// that changes something in the folder. False: it made fewer calls, and ended by itself.
inline bool KilledBefore(int count, const std::string& folder, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const DiskLog log(
        folder, [] {},
        [left = count]() mutable {
          if (left-- == 0) ::kill(::getpid(), SIGKILL);
        });
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace strata
