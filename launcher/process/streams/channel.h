// Channel: messages in both directions between the launcher and the processes that it started. A
// message is a map, sent as one line of JSON over a Unix stream socket. It may carry file
// descriptors.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/streams/message_buffer.h"
#include "launcher/process/streams/pipes.h"

namespace strata::launcher {

/// A received message.
struct Message {
  Value body;
  std::vector<Fd> fds;  ///< the descriptors sent with it, in the sender's order
};

/// One end of a channel. Several threads may call Send(); only one may call Receive().
class Channel {
 public:
  Channel() = default;
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }
  void Close() { socket_.Close(); }

  /// Sends the whole message; false when the other end is closed. The other end gets duplicates of
  /// `fds` (at most kMaxFds); the caller keeps the originals.
  bool Send(const Value& body, std::span<const int> fds = {});
  static constexpr size_t kMaxFds = 8;

  /// Waits until something can be read, reads it, and appends the messages that are complete now.
  /// False when the other end is closed and everything has been read. Throws WorldError for bytes
  /// that are no message, and for a message longer than MessageBuffer::kLongest.
  bool Receive(std::vector<Message>& messages);

 private:
  Message Parse(std::string_view line);

  Fd socket_;
  std::unique_ptr<std::mutex> send_mutex_ = std::make_unique<std::mutex>();
  MessageBuffer pending_;        // the beginning of an incomplete message
  std::deque<Fd> received_fds_;  // descriptors of messages that are not complete yet
};

}  // namespace strata::launcher
