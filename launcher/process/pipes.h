// Descriptors that processes share: pairs that connect two of them, and a file without a name. exec
// closes all of them.
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

/// Lets this process and those that it starts open as many files as the system allows it, up to
/// 65,536: of each rank the launcher holds three, or four. The usual limit of 1,024 is a default
/// that programs are meant to raise.
void RaiseDescriptorLimit();

/// A file in memory: it has no name, and processes that inherit the descriptor share it. Others
/// cannot open it, and nothing is left of it when the last of them ends.
Fd MakeMemoryFile();

}  // namespace strata::launcher
