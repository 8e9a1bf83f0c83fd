// Fd, a file descriptor that closes itself; functions that write files and throw on failure; and
// tests of whether a descriptor is a terminal, and of whether it shows colors.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace strata {

/// Owns one file descriptor, or none (-1).
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

/// Writes `text` to the file `path`, which is created or overwritten. Throws WorldError with the
/// path.
void WriteFile(const std::string& path, std::string_view text);

/// Opens the file `path` for writing and closes it again. Creates an empty file if there is none;
/// an existing file keeps its content. Throws WorldError as WriteFile() does. A command that writes
/// its file only at its end, possibly hours later, calls this first.
void CheckWritable(const std::string& path);

/// The path /proc/self/fd/FD. A process that owns the descriptor can open the same file again by
/// this path, with other flags and an independent file offset.
std::string PathOfDescriptor(int fd);
bool IsPathOfDescriptor(std::string_view path);

/// True if the descriptor is a terminal that can move its cursor: TERM is set and is not "dumb".
bool IsTerminal(int fd);
/// True if IsTerminal() and the user has not switched colors off with NO_COLOR (see no-color.org).
bool ShowsColors(int fd);

}  // namespace strata
