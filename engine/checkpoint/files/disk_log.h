// DiskLog: in which order a process writes, syncs and renames files; for tests. Who links it has
// its own write(), pwrite(), fsync(), ftruncate(), unlink(), rename() and renameat2(), which do
// what the C library's do, or fail where a test says so.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace strata {

/// What this process does while one lives, in order: "write FILE" (once for writes that follow each
/// other), "sync FILE", "rename FILE to FILE". Only of files in the folder, which is "."; this
/// process's number in their names is PID. One at a time; it outlives the threads that write.
class DiskLog {
 public:
  /// Both are called on the thread that writes: `before_write` before it does, `before_change`
  /// before each call that writes, syncs, renames or removes. What it returns but 0 is the errno
  /// with which that call fails.
  explicit DiskLog(
      const std::string& folder, std::function<void()> before_write = [] {},
      std::function<int()> before_change = [] { return 0; });
  ~DiskLog();
  DiskLog(const DiskLog&) = delete;
  DiskLog& operator=(const DiskLog&) = delete;
  std::vector<std::string> events() const;

  // For the calls. False: it fails, and errno says why.
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
