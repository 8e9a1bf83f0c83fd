// Defines functions with the names of the C library's, which the linker prefers. They report to the
// DiskLog, if there is one, and then make the system call themselves.
#include "engine/checkpoint/files/disk_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <regex>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

std::atomic<DiskLog*> current = nullptr;

/// The path of an open file; "" if it has none.
std::string PathOf(int fd) {
  std::error_code error;
  return fs::read_symlink(PathOfDescriptor(fd), error);
}

}  // namespace

DiskLog::DiskLog(const std::string& folder, std::function<void()> before_write,
                 std::function<int()> before_change)
    : folder_(fs::canonical(folder)),
      before_write_(std::move(before_write)),
      before_change_(std::move(before_change)) {
  current = this;
}

DiskLog::~DiskLog() { current = nullptr; }

std::vector<std::string> DiskLog::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

bool DiskLog::OnChange(const std::string& path) {
  DiskLog* log = current;
  const int error = log && log->IsInside(path) ? log->before_change_() : 0;
  if (error != 0) errno = error;
  return error == 0;
}

bool DiskLog::OnWrite(int fd) {
  if (!OnChange(PathOf(fd))) return false;
  DiskLog* log = current;
  if (!log || !log->IsInside(PathOf(fd))) return true;
  log->before_write_();
  log->Add(Str("write ", log->Name(PathOf(fd))));
  return true;
}

bool DiskLog::OnSync(int fd) {
  if (!OnChange(PathOf(fd))) return false;
  DiskLog* log = current;
  if (log && log->IsInside(PathOf(fd))) log->Add(Str("sync ", log->Name(PathOf(fd))));
  return true;
}

void DiskLog::OnRename(const std::string& from, const std::string& to) {
  DiskLog* log = current;
  if (!log || !log->IsInside(fs::weakly_canonical(to))) return;
  const auto name = [&](const std::string& path) { return log->Name(fs::weakly_canonical(path)); };
  log->Add(Str("rename ", name(from), " to ", name(to)));
}

bool DiskLog::IsInside(const std::string& path) const {
  return path == folder_ || path.starts_with(folder_ + "/");
}

std::string DiskLog::Name(const std::string& path) const {
  const std::string name = path == folder_ ? "." : path.substr(folder_.size() + 1);
  return std::regex_replace(name, std::regex(Str("-", ::getpid(), "\\b")), "-PID");
}

void DiskLog::Add(const std::string& event) {
  const std::lock_guard lock(mutex_);
  const bool goes_on = event.starts_with("write") && !events_.empty() && events_.back() == event;
  if (!goes_on) events_.push_back(event);
}

}  // namespace strata

extern "C" {

ssize_t write(int fd, const void* bytes, size_t count) {
  if (!strata::DiskLog::OnWrite(fd)) return -1;
  return ::syscall(SYS_write, fd, bytes, count);
}

int fsync(int fd) {
  if (!strata::DiskLog::OnSync(fd)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t place) {
  if (!strata::DiskLog::OnChange(strata::PathOf(fd))) return -1;
  return ::syscall(SYS_pwrite64, fd, bytes, count, place);
}

int ftruncate(int fd, off_t size) noexcept {
  if (!strata::DiskLog::OnChange(strata::PathOf(fd))) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}

int unlink(const char* path) noexcept {
  if (!strata::DiskLog::OnChange(strata::fs::weakly_canonical(path))) return -1;
  return static_cast<int>(::syscall(SYS_unlink, path));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) noexcept {
  if (!strata::DiskLog::OnChange(strata::fs::weakly_canonical(to))) return -1;
  const long done = ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (done == 0) strata::DiskLog::OnRename(from, to);
  return static_cast<int>(done);
}

int rename(const char* from, const char* to) noexcept {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

}  // extern "C"
