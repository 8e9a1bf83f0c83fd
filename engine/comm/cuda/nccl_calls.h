// What the NCCL transport calls: NCCL's functions, without a header of NCCL or CUDA. The CUDA
// library has NCCL's own (nccl_library.h); tests have others, for ranks that are threads.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <string>

#include "engine/comm/group.h"

namespace strata {

/// One rank's end of a communicator (ncclComm_t).
struct NcclComm;

/// kUnderWay: the communicator works on it beside the caller; State() tells when it is done.
enum class NcclResult { kDone, kUnderWay, kPeerIsGone, kFailed };

/// Memory of `count` elements.
struct NcclMemory {
  void* begin = nullptr;
  size_t count = 0;
  c10::ScalarType type = c10::kByte;
};

/// Each does what NCCL's function of such a name does, for communicators that do not block: a call
/// may give kUnderWay, and its communicator must be done with it before it gets the next. Calls
/// between GroupStart() and GroupEnd() of a thread begin together. All are put into the stream.
class NcclCalls {
 public:
  virtual ~NcclCalls() = default;

  /// The name under which the ranks of a new communicator meet.
  virtual NcclResult NewId(std::string& id) = 0;
  virtual NcclResult Open(NcclComm*& comm, int ranks, const std::string& id, int rank) = 0;
  /// How the communicator's last call goes on, or what has happened to it since.
  virtual NcclResult State(NcclComm* comm) = 0;
  /// Why the last call failed.
  virtual std::string Why(NcclComm* comm, NcclResult result) = 0;
  /// Waits, as kUnderWay, for all that was launched. Then Destroy() frees the communicator.
  virtual NcclResult Finalize(NcclComm* comm) = 0;
  virtual void Destroy(NcclComm* comm) = 0;
  /// Ends all that was launched, unfinished, and frees the communicator.
  virtual void Abort(NcclComm* comm) = 0;

  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;
  virtual NcclResult Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) = 0;
  virtual NcclResult Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) = 0;
  virtual NcclResult AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                               c10::Stream stream) = 0;
  virtual NcclResult Reduce(NcclMemory from, void* to, ReduceOp op, int root, NcclComm* comm,
                            c10::Stream stream) = 0;
  virtual NcclResult Broadcast(NcclMemory from, void* to, int root, NcclComm* comm,
                               c10::Stream stream) = 0;
};

}  // namespace strata
