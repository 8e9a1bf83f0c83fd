// Descriptors that processes share: pairs that connect two processes, and a file without a name.
// All are closed by exec.
#pragma once

#include "engine/base/fd.h"

namespace strata::launcher {

/// A one-way connection.
struct Pipe {
  Fd read;
  Fd write;
};
Pipe MakePipe();
/// From now on reading and writing return EAGAIN instead of blocking.
void SetNonBlocking(int fd);

/// A two-way connection between two processes (Unix stream sockets).
struct SocketPair {
  Fd parent;
  Fd child;
};
SocketPair MakeSocketPair();

/// Raises this process's limit of open files, which child processes inherit, as far as the system
/// allows, up to 65,536. The launcher holds three or four descriptors for each rank. The usual
/// limit of 1,024 is a default that programs are meant to raise.
void RaiseDescriptorLimit();

/// A file in memory without a name. Processes that inherit the descriptor share it, and others
/// cannot open it. It disappears when the last of these processes ends.
Fd MakeMemoryFile();

}  // namespace strata::launcher
