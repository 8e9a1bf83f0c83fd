// NCCL for ranks that are threads of a process, on the shadow devices (machine.h).
//
// As NCCL does: two ranks connect at their first message, all ranks of a communicator at its first
// collective, and until all have called, the caller's host waits. Launches go into their stream in
// order; a message begins when both ends are at the head of their streams and ends at both at once.
// The calls of a group begin together. What cannot end is a cycle, told at once (CycleError). What
// NCCL leaves undefined is an error here: counts or types that do not fit, a communicator used by
// two threads at once or after its end, a stream with two communicators, a group left open.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/cuda/nccl_calls.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {

class FakeNccl : public NcclCalls {
 public:
  struct Room;
  struct Call;
  FakeNccl();
  ~FakeNccl() override;

  NcclResult NewId(std::string& id) override;
  NcclResult Open(NcclComm*& comm, int ranks, const std::string& id, int rank) override;
  NcclResult State(NcclComm* comm) override;
  std::string Why(NcclComm* comm, NcclResult result) override;
  NcclResult Finalize(NcclComm* comm) override;
  void Destroy(NcclComm* comm) override;
  void Abort(NcclComm* comm) override;
  NcclResult GroupStart() override;
  NcclResult GroupEnd() override;
  NcclResult Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) override;
  NcclResult Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) override;
  NcclResult AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                       c10::Stream stream) override;
  NcclResult Reduce(NcclMemory from, void* to, ReduceOp op, int root, NcclComm* comm,
                    c10::Stream stream) override;
  NcclResult Broadcast(NcclMemory from, void* to, int root, NcclComm* comm,
                       c10::Stream stream) override;

  /// From now on no communicator of several ranks opens, and nothing says so.
  void CutNetwork() { is_cut_ = true; }
  /// The rank's process died: its calls fail, and those of others that wait for it.
  void Kill(const std::string& host);
  /// How often something was aborted, and ended cleanly.
  int aborted() const { return aborted_; }
  int destroyed() const { return destroyed_; }
  /// Communicators that were not opened in one group with others.
  int opened_alone() const { return opened_alone_; }
  /// What an abort has cut off.
  const std::vector<std::string>& unfinished() const { return unfinished_; }
  /// What was done that NCCL leaves undefined.
  std::vector<std::string> misuses() const;

 private:
  class Using;
  NcclResult Put(Call call);
  NcclResult Begin(std::vector<Call> calls);
  NcclResult Continue(NcclComm* comm);
  void LaunchAll(NcclComm* comm);
  std::pair<std::shared_ptr<Meeting>, int> Join(const Call& call);
  void End(NcclComm* comm, const std::string& why_for_others);
  static std::vector<int> Awaited(const NcclComm* comm);
  void Misuse(const std::string& what);

  // Guarded by the machine's lock.
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  std::vector<std::unique_ptr<NcclComm>> comms_;
  std::map<int, NcclComm*> streams_;
  std::vector<std::string> misuses_, unfinished_;
  bool is_cut_ = false;
  int aborted_ = 0, destroyed_ = 0, opened_alone_ = 0;
};

}  // namespace strata::shadow
