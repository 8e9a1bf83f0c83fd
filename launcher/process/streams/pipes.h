// Pairs of file descriptors that connect two processes, and the listening socket of a local job's
// store. exec closes all of them.
#pragma once

#include "engine/base/fd.h"

namespace strata::launcher {

/// A one-way connection.
struct Pipe {
  Fd read;
  Fd write;
};
Pipe MakePipe();
/// From now on reading and writing return EAGAIN where they would wait.
void SetNonBlocking(int fd);

/// A two-way connection between two processes (Unix stream sockets).
struct SocketPair {
  Fd parent;
  Fd child;
};
SocketPair MakeSocketPair();

/// A listening socket on 127.0.0.1, at a port that the kernel chooses. Other machines cannot reach
/// it.
struct LoopbackListener {
  Fd socket;
  int port = 0;
};
LoopbackListener ListenOnLoopback();

}  // namespace strata::launcher
