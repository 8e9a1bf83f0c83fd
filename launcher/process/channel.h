// Channel: messages between the launcher and the processes that it started. A message is a map,
// sent as one line of JSON over a Unix stream socket, both ways; descriptors may travel with it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/fd.h"
#include "launcher/process/message_buffer.h"

namespace strata::launcher {

struct Message {
  Value body;
  std::vector<Fd> fds;  ///< what travelled with it, in the sender's order
};

/// One end. Send() may be called from several threads, Receive() from one.
class Channel {
 public:
  Channel() = default;
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }
  void Close() { socket_.Close(); }

  /// Hands the whole message to the kernel. False when the other end is gone. `fds` (at most
  /// kMaxFds) stay the caller's own; the other end gets duplicates.
  bool Send(const Value& body, std::span<const int> fds = {});
  static constexpr size_t kMaxFds = 8;

  /// Reads what is there, waiting for something to be there, and appends the messages that are now
  /// complete. False when the other end is gone and everything has been read. Throws WorldError for
  /// bytes that are no message, and for one longer than MessageBuffer::kLongest.
  bool Receive(std::vector<Message>& messages);

 private:
  Message Parse(std::string_view line);

  Fd socket_;
  std::unique_ptr<std::mutex> send_mutex_ = std::make_unique<std::mutex>();
  MessageBuffer pending_;        // the beginning of a message
  std::deque<Fd> received_fds_;  // of messages that are not complete yet
};

}  // namespace strata::launcher
