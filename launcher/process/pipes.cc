// Pipes, socket pairs and files in memory.
#include "launcher/process/pipes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace strata::launcher {

Pipe MakePipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("cannot make a pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

void SetNonBlocking(int fd) {
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) ThrowErrno("fcntl");
}

SocketPair MakeSocketPair() {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    ThrowErrno("cannot make a socket pair");
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

void RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Fd MakeMemoryFile() {
  Fd fd(::memfd_create("strata", MFD_CLOEXEC));
  if (!fd.is_open()) ThrowErrno("cannot make a file in memory");
  return fd;
}

}  // namespace strata::launcher
