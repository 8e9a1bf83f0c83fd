// File descriptors that close themselves, and the pairs of them that connect two processes. All are
// closed by exec.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace strata::launcher {

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

/// A one-way connection.
struct Pipe {
  Fd read;
  Fd write;
};
Pipe MakePipe();

/// A connection both ways between two processes (a Unix stream socket).
struct SocketPair {
  Fd parent;
  Fd child;
};
SocketPair MakeSocketPair();

/// A listening socket on 127.0.0.1, on a port that the kernel chooses: no other machine reaches it.
struct LoopbackListener {
  Fd socket;
  int port = 0;
};
LoopbackListener ListenOnLoopback();

/// Throws WorldError "WHAT: No space left on device", from errno.
[[noreturn]] void ThrowErrno(std::string_view what);

/// Writes everything; throws WorldError naming `name` when the kernel does not take it.
void WriteAll(int fd, std::string_view text, std::string_view name);

}  // namespace strata::launcher
