// JsonLines: messages as lines of JSON over two plain descriptors, such as a process's standard
// input and output. The launcher and a `strata worker` use it over ssh.
#pragma once

#include <vector>

#include "engine/base/value.h"
#include "launcher/process/streams/message_buffer.h"
#include "launcher/process/streams/pipes.h"

namespace strata::launcher {

class JsonLines {
 public:
  JsonLines() = default;
  JsonLines(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {}

  int fd() const { return in_.get(); }
  bool is_open() const { return in_.is_open(); }
  void CloseInput() { in_.Close(); }
  void CloseOutput() { out_.Close(); }

  /// Sends a message; false when the other end is closed. REQUIRES: SIGPIPE is ignored.
  bool Send(const Value& message);
  /// Waits until something can be read, reads it, and appends the messages that are complete now.
  /// False when the other end is closed. Throws WorldError for a line that is no message, and for
  /// one longer than MessageBuffer::kLongest.
  bool Receive(std::vector<Value>& messages);

 private:
  Fd in_, out_;
  MessageBuffer pending_;
};

}  // namespace strata::launcher
