// OutputStream: what a process writes to its standard output or standard error, line by line.
#pragma once

#include "launcher/process/fd.h"
#include "launcher/process/lines.h"

namespace strata::launcher {

struct OutputStream {
  OutputStream(Fd fd, LineSplitter::Sink sink) : fd(std::move(fd)), lines(std::move(sink)) {}

  /// Reads what is there, waiting for something; closes it at the end.
  void Read();

  Fd fd;
  LineSplitter lines;
};

}  // namespace strata::launcher
