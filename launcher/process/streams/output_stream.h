// OutputStream: reads a process's standard output or standard error, and passes it on line by line.
#pragma once

#include "launcher/process/streams/lines.h"
#include "launcher/process/streams/pipes.h"

namespace strata::launcher {

struct OutputStream {
  OutputStream(Fd fd, LineSplitter::Sink sink) : fd(std::move(fd)), lines(std::move(sink)) {}

  /// Waits until something can be read and reads it. At the stream's end it closes `fd`.
  void Read();

  Fd fd;
  LineSplitter lines;
};

}  // namespace strata::launcher
