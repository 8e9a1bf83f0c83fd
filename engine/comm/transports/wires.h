// Wires: Strata's own TCP connections between ranks, for small messages. The rank's own thread
// writes and reads them: a message costs two system calls and wakes at most one thread, whereas a
// message through Gloo passes through two more threads. Torch-free.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "engine/comm/place.h"
#include "engine/comm/transports/patience.h"

namespace strata {

/// A connection to one rank for one channel. The messages of each direction stay in order. Both
/// ends must know the size of every message; the size is also sent, so that a difference is
/// noticed.
///
/// One thread uses it. Errors: WorldError when the wires were aborted or a message has another size
/// than expected; PeerError that names the rank when the connection is lost.
class Wire {
 public:
  virtual ~Wire() = default;
  /// Sends a message without ever waiting: bytes that the kernel does not take at once are copied
  /// and sent by another thread. `has_appendix` tells the receiver that the next message is an
  /// appendix to this one.
  virtual void Send(const void* bytes, size_t size, bool has_appendix = false) = 0;
  /// Waits for the next message and writes it to `bytes`. Returns true if it has an appendix.
  /// Throws PeerError if the message is not complete after `seconds`.
  virtual bool Receive(void* bytes, size_t size,
                       double seconds = std::numeric_limits<double>::infinity()) = 0;
  /// True if a message, or the end of the connection, has arrived, so that Receive() would not have
  /// to wait for the peer to send.
  virtual bool HasCome() = 0;
};

/// A board on which ranks leave texts for each other before they are connected.
struct Board {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;  ///< waits until the key has been set
};

/// Names a wire on one rank: the other rank, and the channel.
using WireKey = std::pair<int, int>;

/// All wires of one rank.
///
/// For each wire the lower rank listens and the higher rank connects. A rank listens at
/// OwnAddress(place), at one port that the kernel chooses, and only until all its peers have
/// connected. First each end proves that it knows place.secret, by an HMAC of random bytes that the
/// other end has just made; otherwise the connection is closed. If the place has no secret, rank 0
/// makes one and puts it on the board; then the connections are only as safe as the board.
class Wires {
 public:
  /// Connects all `wanted` wires. The rank at the other end of each must want it too. Rank 0 must
  /// call this even if it wants no wire, since it may have to make the secret. `patience` is how
  /// long a receiver polls. Throws PeerError that names the ranks which did not connect within
  /// `timeout` seconds.
  static std::unique_ptr<Wires> Connect(const RankPlace& place, const std::set<WireKey>& wanted,
                                        const Board& board, Patience patience, double timeout);
  virtual ~Wires() = default;

  /// The wire to `peer` for `channel`; null if it was not wanted.
  virtual Wire* Find(int peer, int channel) = 0;
  /// From any thread: makes every Send() and Receive(), present and later ones, throw
  /// WorldError(`why`) within milliseconds.
  virtual void Abort(const std::string& why) = 0;
};

}  // namespace strata
