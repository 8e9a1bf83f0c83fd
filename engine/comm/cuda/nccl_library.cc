#include "engine/comm/cuda/nccl_library.h"

#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

NcclResult ResultOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return NcclResult::kDone;
    case ncclInProgress:
      return NcclResult::kUnderWay;
    case ncclRemoteError:  // the peer's process or the network ended
      return NcclResult::kPeerIsGone;
    default:
      return NcclResult::kFailed;
  }
}

ncclDataType_t TypeOf(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return ncclFloat32;
    case c10::kDouble:
      return ncclFloat64;
    case c10::kHalf:
      return ncclFloat16;
    case c10::kBFloat16:
      return ncclBfloat16;
    case c10::kLong:
      return ncclInt64;
    case c10::kInt:
      return ncclInt32;
    case c10::kChar:
      return ncclInt8;
    case c10::kByte:
    case c10::kBool:
      return ncclUint8;
    default:
      throw ConfigError(Str("NCCL has no type ", c10::toString(type)));
  }
}

ncclRedOp_t OpOf(ReduceOp op) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};
  return kOps[static_cast<int>(op)];
}

ncclComm_t Native(NcclComm* comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t Native(c10::Stream stream) { return c10::cuda::CUDAStream(stream).stream(); }

class Library final : public NcclCalls {
 public:
  NcclResult NewId(std::string& id) override {
    ncclUniqueId unique{};
    const NcclResult result = ResultOf(ncclGetUniqueId(&unique));
    id.assign(unique.internal, sizeof(unique));
    return result;
  }
  NcclResult Open(NcclComm*& comm, int ranks, const std::string& id, int rank) override {
    ncclUniqueId unique{};
    id.copy(unique.internal, sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto** native = reinterpret_cast<ncclComm_t*>(&comm);
    return ResultOf(ncclCommInitRankConfig(native, ranks, unique, rank, &config));
  }
  NcclResult State(NcclComm* comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(Native(comm), &state);
    return ResultOf(asked != ncclSuccess ? asked : state);
  }
  std::string Why(NcclComm* comm, NcclResult result) override {
    const char* kind = result == NcclResult::kPeerIsGone ? "the other rank is gone" : "failed";
    const char* last = ncclGetLastError(comm ? Native(comm) : nullptr);
    return Str(kind, last && *last ? Str(" (", last, ")") : "");
  }
  NcclResult Finalize(NcclComm* comm) override { return ResultOf(ncclCommFinalize(Native(comm))); }
  void Destroy(NcclComm* comm) override { ncclCommDestroy(Native(comm)); }
  void Abort(NcclComm* comm) override { ncclCommAbort(Native(comm)); }

  NcclResult GroupStart() override { return ResultOf(ncclGroupStart()); }
  NcclResult GroupEnd() override { return ResultOf(ncclGroupEnd()); }
  NcclResult Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) override {
    return ResultOf(
        ncclSend(from.begin, from.count, TypeOf(from.type), peer, Native(comm), Native(stream)));
  }
  NcclResult Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) override {
    return ResultOf(
        ncclRecv(to.begin, to.count, TypeOf(to.type), peer, Native(comm), Native(stream)));
  }
  NcclResult AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                       c10::Stream stream) override {
    return ResultOf(ncclAllReduce(from.begin, to, from.count, TypeOf(from.type), OpOf(op),
                                  Native(comm), Native(stream)));
  }
  NcclResult Reduce(NcclMemory from, void* to, ReduceOp op, int root, NcclComm* comm,
                    c10::Stream stream) override {
    return ResultOf(ncclReduce(from.begin, to, from.count, TypeOf(from.type), OpOf(op), root,
                               Native(comm), Native(stream)));
  }
  NcclResult Broadcast(NcclMemory from, void* to, int root, NcclComm* comm,
                       c10::Stream stream) override {
    return ResultOf(ncclBroadcast(from.begin, to, from.count, TypeOf(from.type), root, Native(comm),
                                  Native(stream)));
  }
};

}  // namespace

NcclCalls& NcclLibrary() {
  static Library library;
  return library;
}

}  // namespace strata
