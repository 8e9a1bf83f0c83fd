// KilledBefore(): a process that dies before it changes the disk once more, and a disk that fails
// then; for tests.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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
          return 0;
        });
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/// Which call number of those that change something in a folder (from 0) fails with EIO, and
/// whether all after it do.
struct DiskFailure {
  int count = 0;
  bool lasts = false;
};

/// Runs `work` on such a disk. False: it made fewer calls. What it throws, it throws here.
inline bool FailsOnDisk(const DiskFailure& failure, const std::string& folder,
                        const std::function<void()>& work) {
  std::atomic<int> calls = 0;
  const DiskLog log(
      folder, [] {},
      [&] {
        const int call = calls++;
        return call == failure.count || (failure.lasts && call > failure.count) ? EIO : 0;
      });
  work();
  return calls > failure.count;
}

}  // namespace strata
