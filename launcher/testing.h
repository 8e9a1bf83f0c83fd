// A helper for the launcher's tests: a Terminal whose output a test can read.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

#include "launcher/process/streams/pipes.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {

/// Captures the output of a Terminal in a pipe, so at most 64 KiB.
class CapturedTerminal {
 public:
  Terminal& terminal() { return terminal_; }
  /// All that was written to standard output and standard error, together. Nothing can be written
  /// afterwards.
  std::string Text() {
    pipe_.write.Close();
    std::string text;
    std::array<char, 4096> buffer;
    ssize_t count;
    while ((count = ::read(pipe_.read.get(), buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }

 private:
  Pipe pipe_ = MakePipe();
  Terminal terminal_{pipe_.write.get(), pipe_.write.get()};
};

}  // namespace strata::launcher
