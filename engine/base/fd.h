// Fd: a file descriptor that closes itself; and what goes wrong with descriptors, as errors.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace strata {

/// Owns a descriptor, or none.
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
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

/// Throws WorldError "WHAT: No space left on device", from errno.
[[noreturn]] void ThrowErrno(std::string_view what);

/// Writes everything; throws WorldError naming `name` when the kernel does not take it.
void WriteAll(int fd, std::string_view text, std::string_view name);

/// Makes `path` a file with this text, in place of what it was. Throws WorldError with the path.
void WriteFile(const std::string& path, std::string_view text);

/// Throws what WriteFile() would throw when the file cannot be opened; makes one where there is
/// none. For what is only written after hours.
void CheckWritable(const std::string& path);

}  // namespace strata
