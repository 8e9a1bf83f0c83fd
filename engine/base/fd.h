// Fd, a file descriptor that closes itself; functions that write files and throw on failure; what
// a descriptor shows to people.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace strata {

/// Owns one descriptor, or none (-1).
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  /// Gives the descriptor to the caller, who closes it.
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

/// Throws WorldError with `what` and the text of errno: "WHAT: No space left on device".
[[noreturn]] void ThrowErrno(std::string_view what);

/// Writes all of `text`. Throws WorldError "cannot write to NAME: ..." when a write fails; part of
/// the text may then have been written.
void WriteAll(int fd, std::string_view text, std::string_view name);

/// Writes `text` to the file `path`, which is made or overwritten. Throws WorldError with the path.
void WriteFile(const std::string& path, std::string_view text);

/// Opens the file `path` for writing and closes it again. Makes an empty file where there is none;
/// an existing one keeps its content. Throws WorldError as WriteFile() does. A command that writes
/// its file only at the end, hours later, calls this first.
void CheckWritable(const std::string& path);

/// Where a process that has the descriptor opens its file again, with flags and a place of its own.
std::string PathOfDescriptor(int fd);
bool IsPathOfDescriptor(std::string_view path);

/// True for a terminal that can move its cursor: TERM names one that is not "dumb".
bool IsTerminal(int fd);
/// True for such a terminal where nobody asked for no colors: no-color.org.
bool ShowsColors(int fd);

}  // namespace strata
