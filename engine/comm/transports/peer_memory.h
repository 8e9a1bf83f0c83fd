// PeerMemory: reads the memory of another rank on the same machine (Linux's process_vm_readv).
//
// It is faster than a socket, where the kernel copies a message twice and wakes threads that need
// the cores on which ranks compute. The sender sends only the address of a tensor. The receiver
// copies the tensor from there, once, when it needs it.
//
// Linux allows such reads between processes of one user. With Yama (Debian, Ubuntu) a process can
// be read only by the process that it has named and that process's descendants: a rank names its
// parent, from which the other ranks also descend. Containers may forbid the call. So both ends of
// a wire try it once before they rely on it. Torch-free.
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
  /// `pid` is the process of rank `peer`. `rank` is this rank, for error messages.
  PeerMemory(int rank, int peer, pid_t pid) : rank_(rank), peer_(peer), pid_(pid) {}

  /// Copies `size` bytes from `address` in the peer to `to`. Throws PeerError that names the peer
  /// if the bytes cannot be read, for example because the peer has ended.
  void Read(uint64_t address, void* to, size_t size) const;

 private:
  int rank_, peer_;
  pid_t pid_;
};

/// The result of TryReach() for one wire.
struct Reach {
  std::optional<PeerMemory> theirs;  ///< empty if this rank cannot read the peer's memory
  bool reads_ours = false;           ///< true if the peer can read this rank's memory
};

/// Tries, over each of these wires of rank `rank`, to read the peer's memory. The ranks at the
/// other ends must call this too. Each rank tells the address of a random number in its memory and
/// the number itself; a process on another machine or in another container does not have that
/// number at that address. Throws PeerError if a peer sends nothing for `timeout` seconds.
std::map<WireKey, Reach> TryReach(int rank, Wires& wires, const std::set<WireKey>& keys,
                                  double timeout);

}  // namespace strata
