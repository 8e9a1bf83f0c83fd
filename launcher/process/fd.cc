#include "launcher/process/fd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {

void Fd::Close() {
  if (fd_ >= 0) ::close(Release());
}

void ThrowErrno(std::string_view what) {
  const int error = errno;
  throw WorldError(Str(what, ": ", std::strerror(error)));
}

Pipe MakePipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("cannot make a pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

SocketPair MakeSocketPair() {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    ThrowErrno("cannot make a socket pair");
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

LoopbackListener ListenOnLoopback() {
  LoopbackListener listener;
  listener.socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const int fd = listener.socket.get();
  if (fd < 0 || ::bind(fd, plain, size) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
      ::getsockname(fd, plain, &size) != 0) {
    ThrowErrno("cannot listen on 127.0.0.1");
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

void WriteAll(int fd, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) ThrowErrno(Str("cannot write to ", name));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace strata::launcher
