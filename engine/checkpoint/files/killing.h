// For tests: KilledBefore() runs code in a process that is killed before a chosen change of the
// disk, and FailsOnDisk() runs code on a disk that fails at that change.
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

/// Runs `work` in a process of its own, and kills it (SIGKILL) before its call number `count` (from
/// 0) that changes something in the folder. Returns false if `work` made fewer calls and ended by
/// itself.
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

/// The number (from 0) of the call that fails with EIO, among those that change something in a
/// folder, and whether all later calls fail too.
struct DiskFailure {
  int count = 0;
  bool lasts = false;
};

/// Runs `work` on such a disk. Returns false if it made fewer calls. Exceptions of `work` are
/// passed on.
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
