// NcclCalls: the functions of NCCL that the transport calls, as an interface without NCCL's or
// CUDA's headers. The CUDA library implements it with NCCL itself (nccl_library.h); tests implement
// it for ranks that are threads.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <string>

#include "engine/comm/group.h"

namespace strata {

/// One rank's end of a communicator (ncclComm_t).
struct NcclComm;

/// The result of a call. kUnderWay: NCCL is still working on the call in the background; State()
/// tells when it is done.
enum class NcclResult { kDone, kUnderWay, kPeerIsGone, kFailed };

/// A contiguous piece of device memory with `count` elements.
struct NcclMemory {
  void* begin = nullptr;
  size_t count = 0;
  c10::ScalarType type = c10::kByte;
};

/// Each function does what the NCCL function of the same name does, for non-blocking communicators:
/// a call may return kUnderWay, and then State() must report kDone before the communicator gets its
/// next call. Calls of one thread between GroupStart() and GroupEnd() start together. Transfers and
/// collectives are queued on `stream`.
class NcclCalls {
 public:
  virtual ~NcclCalls() = default;

  /// Makes the unique id that the ranks of a new communicator open it with (ncclGetUniqueId).
  virtual NcclResult NewId(std::string& id) = 0;
  virtual NcclResult Open(NcclComm*& comm, int ranks, const std::string& id, int rank) = 0;
  /// The state of the communicator's last call, or an error that has occurred since.
  virtual NcclResult State(NcclComm* comm) = 0;
  /// A text that says why the last call failed. `comm` may be null.
  virtual std::string Why(NcclComm* comm, NcclResult result) = 0;
  /// Begins to wait for all launched work (kUnderWay until it is done). Destroy() then frees the
  /// communicator.
  virtual NcclResult Finalize(NcclComm* comm) = 0;
  virtual void Destroy(NcclComm* comm) = 0;
  /// Stops all launched work before it is finished, and frees the communicator.
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
