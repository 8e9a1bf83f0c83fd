// The owner of a folder of saves: a lock of the folder, and the file .owner, which a thread touches
// every kBeat as a heartbeat.
#include "engine/checkpoint/save_owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"

namespace strata {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

// Polling interval: neither flock() nor a change of a file's time can be waited for with a limit.
constexpr std::chrono::milliseconds kLook{20};
constexpr int64_t kLongest = 1000;

/// Identifies this machine since its last boot. Host names alone may be equal, as in containers.
std::string ThisHost() { return Str(HostName(), "/", BootId()); }

/// The owner in the file's text, for messages: "process 123 on host1"; the quoted text itself if it
/// has another form.
std::string OwnerIn(const std::string& text) {
  const std::vector<std::string> words = Split(text, ' ');
  if (words.size() != 3) return Str("\"", Trim(text), "\"");
  return Str("process ", words[1], " on ", Split(words[0], '/').front());
}

/// The content of the file; "" if it does not exist.
std::string ReadOwner(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return "";
  return ReadSmallFile(path, kLongest);
}

double ModifiedAt(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

/// The time since the file was last touched, by the clock of its file system; infinite if it does
/// not exist. `probe` is a temporary file whose time is the current one.
Seconds SilenceOf(const std::string& path, const std::string& probe) {
  struct stat status, now;
  const Fd fd(::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.is_open() || ::futimens(fd.get(), nullptr) != 0 || ::fstat(fd.get(), &now) != 0) {
    ThrowErrno(Str("cannot write ", probe));
  }
  ::unlink(probe.c_str());
  if (::stat(path.c_str(), &status) != 0) return Seconds::max();
  return Seconds(ModifiedAt(now) - ModifiedAt(status));
}

[[noreturn]] void ThrowTaken(const std::string& folder, const std::string& owner) {
  throw ConfigError(Str("another training saves to ", folder, owner.empty() ? "" : ", ",
                        owner.empty() ? "" : OwnerIn(owner),
                        "; choose another folder: --save.dir"));
}

}  // namespace

SaveOwner::SaveOwner(const std::string& folder, std::chrono::duration<double> patience)
    : folder_(folder), path_(Str(folder, "/", kFile)) {
  lock_ = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.is_open()) ThrowErrno(Str("cannot open the folder ", folder));
  const bool is_locked = Lock(patience);
  WaitForOther(patience, is_locked);
  Write();
  heart_ = std::thread([this] { Beat(); });
}

SaveOwner::~SaveOwner() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  if (heart_.joinable()) heart_.join();
  try {
    if (ReadOwner(path_) == text_) ::unlink(path_.c_str());
  } catch (const Error& error) {
    STRATA_LOG(kWarning) << error.what();
  }
}

/// Locks the folder; waits up to `patience`, then throws ConfigError. Returns false if the file
/// system has no locks.
bool SaveOwner::Lock(std::chrono::duration<double> patience) {
  const auto end = Clock::now() + patience;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    if (errno != EWOULDBLOCK) ThrowErrno(Str("cannot lock the folder ", folder_));
    if (Clock::now() > end) ThrowTaken(folder_, ReadOwner(path_));
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

/// Waits until an owner that the lock does not exclude is silent for kSilence. This is needed for
/// owners on other machines, whose locks may not be visible here, and if there are no locks.
void SaveOwner::WaitForOther(std::chrono::duration<double> patience, bool is_locked) const {
  const std::string owner = ReadOwner(path_);
  if (owner.empty() || (is_locked && owner.starts_with(ThisHost() + " "))) return;
  const std::string probe = Str(folder_, "/", kTemporary, ::getpid());
  const Seconds first = SilenceOf(path_, probe);
  const auto begin = Clock::now();
  for (Seconds silence = first; silence < kSilence; silence = SilenceOf(path_, probe)) {
    if (patience == patience.zero() || silence < Clock::now() - begin) ThrowTaken(folder_, owner);
    std::this_thread::sleep_for(kLook);
  }
}

void SaveOwner::Write() {
  text_ = Str(ThisHost(), " ", ::getpid(), " ", std::random_device()());
  const std::string next = Str(folder_, "/", kTemporary, ::getpid());
  ::unlink(next.c_str());
  WriteSyncedFile(next, text_);
  if (::rename(next.c_str(), path_.c_str()) != 0) ThrowErrno(Str("cannot write ", path_));
  file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file_.is_open()) ThrowErrno(Str("cannot write ", path_));
}

void SaveOwner::Beat() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kBeat, [this] { return ended_; })) {
    ::futimens(file_.get(), nullptr);
  }
}

bool SaveOwner::IsFolderGone() const {
  struct stat now, locked;
  if (::stat(folder_.c_str(), &now) != 0) return errno == ENOENT;
  return S_ISDIR(now.st_mode) && ::fstat(lock_.get(), &locked) == 0 &&
         (now.st_dev != locked.st_dev || now.st_ino != locked.st_ino);
}

void SaveOwner::Check() const {
  const std::string owner = ReadOwner(path_);
  if (owner == text_) return;
  throw WorldError(Str("the folder ", folder_, " was taken by ",
                       owner.empty() ? "somebody who removed .owner" : OwnerIn(owner),
                       " while this training saved to it"));
}

}  // namespace strata
