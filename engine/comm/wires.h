// Wires: TCP connections of our own between neighbouring ranks, for small messages. The rank's own
// thread writes and reads them, so that a message costs two system calls and wakes one thread at
// most; through Gloo it passes two more threads. Torch-free.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "engine/comm/patience.h"
#include "engine/comm/place.h"

namespace strata {

/// A connection to one rank for one channel. Messages of each direction stay in order. Both ends
/// know the size of every message; it travels too, so that a peer that is wrong is found out.
///
/// Used by one thread. Errors: WorldError when the wires were aborted, or a message has another
/// size than expected; PeerError that names the rank when the connection is lost.
class Wire {
 public:
  virtual ~Wire() = default;
  /// Never waits: what the kernel does not take at once is copied and goes on beside. The receiver
  /// is told whether the next message is an appendix to this one.
  virtual void Send(const void* bytes, size_t size, bool has_appendix = false) = 0;
  /// Waits for the next message; whether it has an appendix.
  virtual bool Receive(void* bytes, size_t size) = 0;
};

/// Where ranks leave texts for each other before they are connected.
struct Board {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;  ///< waits until somebody has set it
};

/// What a wire is known by on one rank: the other rank, and the channel.
using WireKey = std::pair<int, int>;

/// All wires of one rank.
///
/// Of two ranks the lower one listens, on one port that the kernel chooses, at OwnAddress(place)
/// and only until all have come. The higher one connects and shows the job's token, 16 random bytes
/// that rank 0 leaves on the board: any other connection is closed.
class Wires {
 public:
  /// Connects to all `wanted` ranks, which want this one for the same channels; rank 0 has to take
  /// part even if it wants none. `patience`: of who waits for a message.
  /// Throws PeerError that names who did not come within `timeout` seconds.
  static std::unique_ptr<Wires> Connect(const RankPlace& place, const std::set<WireKey>& wanted,
                                        const Board& board, Patience patience, double timeout);
  virtual ~Wires() = default;

  /// Null when none was wanted.
  virtual Wire* Find(int peer, int channel) = 0;
  /// From any thread: who receives, or will, throws WorldError(`why`) within milliseconds.
  virtual void Abort(const std::string& why) = 0;
};

}  // namespace strata
