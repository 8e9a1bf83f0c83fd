// Pairs of file descriptors that connect two processes, and the socket that ranks meet at. All are
// closed by exec.
#pragma once

#include "engine/base/fd.h"

namespace strata::launcher {

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

}  // namespace strata::launcher
