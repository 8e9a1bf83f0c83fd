// SaveOwner: makes sure that only one process saves to a folder, even among several machines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/fd.h"

namespace strata {

/// While an object lives, the folder belongs to this process. Two things express this:
/// - a lock of the folder, which the kernel drops when the process ends. It works on one machine,
///   and between machines only if the file system supports that; some file systems have no locks.
/// - the file `.owner`, "HOST PID WORD", touched every kBeat. Its owner counts as dead if it was on
///   this machine and the lock is free, or if the file was not touched for kSilence. Ages are
///   measured by the clock of the folder's file system, so the clocks of the machines need not
///   agree.
class SaveOwner {
 public:
  static constexpr std::chrono::milliseconds kBeat{2000};
  static constexpr std::chrono::milliseconds kSilence{10'000};
  static constexpr const char* kFile = ".owner";
  /// The beginning of the names of temporary files of this class; a killed process may leave some.
  static constexpr const char* kTemporary = ".tmp-owner-";

  /// Waits up to `patience` for another owner to go away: a process that was killed holds its lock
  /// for a moment. If the owner is on another machine and its heartbeat has stopped, waits until
  /// kSilence is over. Throws ConfigError that names the owner if it is alive; WorldError if the
  /// folder cannot be written.
  SaveOwner(const std::string& folder, std::chrono::duration<double> patience);
  ~SaveOwner();
  SaveOwner(const SaveOwner&) = delete;
  SaveOwner& operator=(const SaveOwner&) = delete;

  /// Throws WorldError if another process has taken the folder meanwhile, which is possible if this
  /// machine was cut off from the file system for longer than kSilence.
  void Check() const;
  /// True if the folder no longer exists, or another folder has its name now.
  bool IsFolderGone() const;

 private:
  bool Lock(std::chrono::duration<double> patience);
  void WaitForOther(std::chrono::duration<double> patience, bool is_locked) const;
  void Write();
  void Beat();

  const std::string folder_, path_;
  std::string text_;  // the content of the file .owner
  Fd lock_;
  Fd file_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread heart_;
};

}  // namespace strata
