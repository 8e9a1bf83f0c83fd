// Pipes, socket pairs and a listening socket.
#include "launcher/process/streams/pipes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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

}  // namespace strata::launcher
