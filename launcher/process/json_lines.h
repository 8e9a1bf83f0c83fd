// JsonLines: messages as lines of JSON over two plain descriptors, such as a process's standard
// input and output. What the launcher and a `strata worker` speak over ssh.
#pragma once

#include <vector>

#include "engine/base/value.h"
#include "launcher/process/fd.h"
#include "launcher/process/message_buffer.h"

namespace strata::launcher {

class JsonLines {
 public:
  JsonLines() = default;
  JsonLines(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {}

  int fd() const { return in_.get(); }
  bool is_open() const { return in_.is_open(); }
  void CloseInput() { in_.Close(); }
  void CloseOutput() { out_.Close(); }

  /// False when the other end is gone. REQUIRES: SIGPIPE is ignored.
  bool Send(const Value& message);
  /// Reads what is there, waiting for something, and appends the messages that are complete. False
  /// at the end. Throws WorldError for a line that is no message, or longer than
  /// MessageBuffer::kLongest.
  bool Receive(std::vector<Value>& messages);

 private:
  Fd in_, out_;
  MessageBuffer pending_;
};

}  // namespace strata::launcher
