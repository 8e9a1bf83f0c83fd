// SaveOwner: which process saves to a folder, so that no second one does, on whatever machine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/fd.h"

namespace strata {

/// While an object lives, the folder is this process's. Two things say so:
/// - a lock of the folder's, which the kernel drops when its process ends; it holds on one machine,
///   and on others only where the file system carries locks; some file systems have none;
/// - the file `.owner`, "HOST PID WORD", touched every kBeat. Its owner counts as dead when it is
///   of this machine, where a lock tells, or was not touched for kSilence. Ages are told by the
///   folder's own file system, so that clocks need not agree.
class SaveOwner {
 public:
  static constexpr std::chrono::milliseconds kBeat{2000};
  static constexpr std::chrono::milliseconds kSilence{10'000};
  static constexpr const char* kFile = ".owner";
  /// Begins the names of files that become, or are compared with, the owner's; left by a kill.
  static constexpr const char* kTemporary = ".tmp-owner-";

  /// Waits up to `patience` for another owner to be gone: a process that was killed holds its lock
  /// for a moment. An owner on another machine that has not been touched for a while is waited for
  /// until kSilence is over. Throws ConfigError that names the owner when it lives; WorldError when
  /// the folder cannot be written.
  SaveOwner(const std::string& folder, std::chrono::duration<double> patience);
  ~SaveOwner();
  SaveOwner(const SaveOwner&) = delete;
  SaveOwner& operator=(const SaveOwner&) = delete;

  /// Throws WorldError when another process has taken the folder meanwhile, as it may when this
  /// machine was cut off for longer than kSilence.
  void Check() const;
  /// Whether the folder is no longer there, or another one has its name.
  bool IsFolderGone() const;

 private:
  bool Lock(std::chrono::duration<double> patience);
  void WaitForOther(std::chrono::duration<double> patience, bool is_locked) const;
  void Write();
  void Beat();

  const std::string folder_, path_;
  std::string text_;  // the file's content
  Fd lock_;
  Fd file_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread heart_;
};

}  // namespace strata
