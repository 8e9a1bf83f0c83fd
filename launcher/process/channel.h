// Channel: messages in both directions between the launcher and the processes that it started. A
// message is a map with a text "type", sent as one line of JSON: over a Unix stream socket, which
// can carry file descriptors too, or over two plain descriptors, such as the standard input and
// output of a `strata worker` behind ssh.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/lines.h"
#include "launcher/process/pipes.h"
#include "launcher/process/waiting.h"

namespace strata::launcher {

/// {"type": TYPE}.
Value TypedMessage(const char* type);

/// A received message.
struct Message {
  Value body;
  std::vector<Fd> fds;  ///< the descriptors sent with it, in the sender's order
};

/// One end of a channel. Several threads may call Send(); only one may call Receive().
/// REQUIRES: SIGPIPE is ignored, unless the channel is a socket.
class Channel {
 public:
  static constexpr size_t kMaxFds = 8;
  static constexpr size_t kLongest = size_t{64} << 20;  ///< bytes of a message

  Channel() = default;
  explicit Channel(Fd socket) : in_(std::move(socket)), can_send_(in_.is_open()) {}
  Channel(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)), can_send_(out_.is_open()) {}

  /// From now on neither Send() nor Receive() blocks: bytes that the other end does not take yet
  /// stay in a queue, and Flush() sends them.
  void StopWaiting();

  int fd() const { return in_.get(); }
  bool is_open() const { return in_.is_open(); }
  void Close() { CloseInput(), CloseOutput(); }
  void CloseInput() { in_.Close(); }
  /// Nothing more is sent. If the channel has two descriptors, the other end reaches the end of its
  /// input.
  void CloseOutput();

  /// Sends the message after those in the queue; false if the other end is closed. The other end
  /// gets duplicates of `fds` (at most kMaxFds), which needs a socket and a channel that blocks;
  /// the caller keeps the originals.
  bool Send(const Value& body, std::span<const int> fds = {});
  /// Sends as much of the queue as the other end takes now.
  void Flush();
  /// The number of bytes in the queue.
  size_t waiting() const { return queue_.size(); }
  /// Adds the sources of an open channel to wait for; `read` is called when something can be
  /// received.
  void AddTo(std::vector<Source>& sources, std::function<void()> read);

  /// Reads once, and appends the messages that are now complete. False if the other end is closed
  /// and everything has been read. Throws WorldError for bytes that are not a message, and for a
  /// message longer than kLongest.
  bool Receive(std::vector<Message>& messages);

 private:
  int out_fd() const { return out_.is_open() ? out_.get() : in_.get(); }
  void FlushLocked();
  Message Parse(std::string_view line);

  Fd in_;
  Fd out_;  // closed if the socket `in_` is used for both directions
  bool can_send_ = false;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // for sending
  std::string queue_;
  LineSplitter lines_{kLongest, LineSplitter::Overlong::kThrow};
  std::deque<Fd> received_fds_;  // descriptors of messages that are not complete yet
};

}  // namespace strata::launcher
