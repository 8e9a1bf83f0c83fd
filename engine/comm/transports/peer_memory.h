// PeerMemory: the memory of another rank of this machine, read in place (Linux's process_vm_readv).
//
// Through a socket the kernel copies a message twice and wakes threads that need the cores on which
// ranks compute. Of a rank in reach only the place of a tensor is sent; the receiver copies it from
// there, once, when it needs it.
//
// Linux allows it between processes of one user, but Yama (Debian, Ubuntu) only to those that the
// other one has named: a rank names its parent, which stands for all that the parent started.
// Containers may forbid it. So both ends of a wire try, once, before they rely on it. Torch-free.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "engine/comm/transports/wires.h"

namespace strata {

class PeerMemory {
 public:
  /// `pid`: the process of rank `peer`. `rank`: this one, for messages.
  PeerMemory(int rank, int peer, pid_t pid) : rank_(rank), peer_(peer), pid_(pid) {}

  /// Copies `size` bytes at `address` of the peer to `to`. Throws PeerError that names the peer
  /// when they cannot be read, as when it has ended.
  void Read(uint64_t address, void* to, size_t size) const;

 private:
  int rank_, peer_;
  pid_t pid_;
};

/// What the two ends of a wire found out about each other.
struct Reach {
  std::optional<PeerMemory> theirs;  ///< none = this rank cannot read the peer's memory
  bool reads_ours = false;           ///< the peer can read this rank's memory
};

/// Tries it over these wires of rank `rank`. The ranks at their other ends must do so, too. Each
/// shows a random number in its memory, which a process on another machine, or in another
/// container, does not have there. Throws PeerError when a peer says nothing for `timeout` seconds.
std::map<WireKey, Reach> TryReach(int rank, Wires& wires, const std::set<WireKey>& keys,
                                  double timeout);

}  // namespace strata
