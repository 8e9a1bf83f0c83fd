// DiskLog: records in which order a process writes, syncs and renames files; for tests. A program
// that links it has its own write(), pwrite(), fsync(), ftruncate(), unlink(), rename() and
// renameat2(). They do what the C library's functions do, or fail if a test says so.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace strata {

/// While an object lives, it records the calls of this process in order: "write FILE" (once for
/// consecutive writes), "sync FILE", "rename FILE to FILE". It records only files in the given
/// folder, whose own name is "."; the process id in names is replaced by PID. There can be only one
/// object at a time, and it must outlive the threads that write.
class DiskLog {
 public:
  /// Both functions are called on the thread that makes the call: `before_write` before each write,
  /// `before_change` before each call that writes, syncs, renames or removes. If `before_change`
  /// returns a number other than 0, the call fails with it as errno.
  explicit DiskLog(
      const std::string& folder, std::function<void()> before_write = [] {},
      std::function<int()> before_change = [] { return 0; });
  ~DiskLog();
  DiskLog(const DiskLog&) = delete;
  DiskLog& operator=(const DiskLog&) = delete;
  std::vector<std::string> events() const;

  // For the replaced functions. False means that the call fails with the errno that is set.
  static bool OnWrite(int fd);
  static bool OnSync(int fd);
  static bool OnChange(const std::string& path);
  static void OnRename(const std::string& from, const std::string& to);

 private:
  bool IsInside(const std::string& path) const;
  std::string Name(const std::string& path) const;
  void Add(const std::string& event);

  const std::string folder_;
  const std::function<void()> before_write_;
  const std::function<int()> before_change_;
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

}  // namespace strata
