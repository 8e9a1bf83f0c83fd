// Wires: our own TCP connections between ranks, for small messages. The rank's own
// thread writes and reads them. A message costs two system calls and wakes at most one thread;
// through Gloo it passes two more threads. Torch-free.
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
/// ends know the size of every message. The size is sent along, so that a wrong one is noticed.
///
/// One thread uses it. Errors: WorldError when the wires were aborted or a message has another size
/// than expected; PeerError that names the rank when the connection is lost.
class Wire {
 public:
  virtual ~Wire() = default;
  /// Never waits: what the kernel does not take at once is copied and goes on beside. The receiver
  /// is told whether the next message is an appendix to this one.
  virtual void Send(const void* bytes, size_t size, bool has_appendix = false) = 0;
  /// Waits for the next message, and returns whether it has an appendix. Throws PeerError when it
  /// is not whole after `seconds`.
  virtual bool Receive(void* bytes, size_t size,
                       double seconds = std::numeric_limits<double>::infinity()) = 0;
  /// Whether a message, or the end of the connection, has come: Receive() would not wait for the
  /// peer.
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
/// OwnAddress(place), at one port that the kernel chooses, and only until all its peers have come.
/// Before anything else each end shows that it knows place.secret, by its HMAC of what the other
/// end has just made up; else the connection is closed. For a place without a secret rank 0 makes
/// one and leaves it on the board, which then protects what the board protects.
class Wires {
 public:
  /// Connects all `wanted` wires. The other rank of each must want it too. Rank 0 must call this
  /// even if it wants none, since it may have to make the secret. `patience`: how long a receiver
  /// polls. Throws PeerError that names the ranks which did not connect within `timeout` seconds.
  static std::unique_ptr<Wires> Connect(const RankPlace& place, const std::set<WireKey>& wanted,
                                        const Board& board, Patience patience, double timeout);
  virtual ~Wires() = default;

  /// The wire; null when it was not wanted.
  virtual Wire* Find(int peer, int channel) = 0;
  /// From any thread: every Send() and Receive(), present and later ones, throws WorldError(`why`)
  /// within milliseconds.
  virtual void Abort(const std::string& why) = 0;
};

}  // namespace strata
