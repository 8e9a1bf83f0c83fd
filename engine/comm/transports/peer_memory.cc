#include "engine/comm/transports/peer_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/secret.h"
#include "engine/comm/peer_error.h"

namespace strata {
namespace {

/// Copies `size` bytes from another process. Returns the reason of a failure; "" if all were
/// copied.
std::string Copy(pid_t pid, uint64_t address, void* to, size_t size) {
  for (size_t done = 0; done < size;) {
    iovec here = {static_cast<char*>(to) + done, size - done};
    iovec there = {reinterpret_cast<void*>(address + done), size - done};
    const ssize_t got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "it gave nothing";
    done += static_cast<size_t>(got);
  }
  return "";
}

/// The message in which a rank describes its process: its number, and a random number in its memory
/// by which the process is recognised.
using Number = std::array<char, 16>;
struct Card {
  int64_t pid = 0;
  uint64_t address = 0;  ///< where the random number lies in that process
  Number number = {};
};
static_assert(sizeof(Card) == 32);

bool CanRead(const Card& card, int rank, int peer) {
  Number seen = {};
  const auto pid = static_cast<pid_t>(card.pid);
  std::string trouble = Copy(pid, card.address, seen.data(), seen.size());
  if (trouble.empty() && seen != card.number) trouble = "it is another process";
  if (trouble.empty()) return true;
  STRATA_LOG(kInfo) << "rank " << rank << " cannot read the memory of rank " << peer << " ("
                    << trouble << "): large tensors from there go through Gloo";
  return false;
}

}  // namespace

void PeerMemory::Read(uint64_t address, void* to, size_t size) const {
  const std::string trouble = Copy(pid_, address, to, size);
  if (trouble.empty()) return;
  throw PeerError(Str("rank ", rank_, " lost the connection to rank ", peer_,
                      ": its memory cannot be read: ", trouble));
}

std::map<WireKey, Reach> TryReach(int rank, Wires& wires, const std::set<WireKey>& keys,
                                  double timeout) {
  Number number;
  const std::string random = RandomBytes(number.size());
  std::memcpy(number.data(), random.data(), number.size());
  (void)::prctl(PR_SET_PTRACER, ::getppid(), 0, 0,
                0);  // fails on a kernel without Yama, which does not need it
  const Card mine = {::getpid(), reinterpret_cast<uint64_t>(number.data()), number};
  for (const auto& [peer, channel] : keys) wires.Find(peer, channel)->Send(&mine, sizeof(mine));
  std::map<WireKey, Reach> reach;
  for (const WireKey& key : keys) {
    Card theirs;
    Wire& wire = *wires.Find(key.first, key.second);
    wire.Receive(&theirs, sizeof(theirs), timeout);
    if (CanRead(theirs, rank, key.first)) {
      reach[key].theirs = PeerMemory(rank, key.first, static_cast<pid_t>(theirs.pid));
    }
    const char can_read = reach[key].theirs.has_value();
    wire.Send(&can_read, 1);
  }
  for (const WireKey& key : keys) {
    char can_read = 0;
    wires.Find(key.first, key.second)->Receive(&can_read, 1, timeout);
    reach[key].reads_ours = can_read != 0;
  }
  return reach;
}

}  // namespace strata
