// The entry function of libstrata_cuda.so: the table of the functions in cuda_library.h.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/cuda_library.h"
#include "engine/comm/cuda/nccl.h"
#include "engine/comm/cuda/nccl_library.h"
#include "engine/comm/cuda/use_device.h"
#include "engine/comm/transports/gloo.h"

namespace strata {
namespace {

std::unique_ptr<Transport> MakeTransportOfGpus(const RankPlace& place,
                                               const std::vector<LinkSpec>& links,
                                               const std::vector<GroupSpec>& groups,
                                               const std::vector<GroupSpec>& host_groups,
                                               double timeout) {
  const int devices = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  // A rank to which its launcher shows one GPU only takes that one.
  if (place.local_rank >= devices && devices != 1) {
    throw WorldError(
        Str("rank ", place.rank, " needs GPU ", place.local_rank, ", this machine has ", devices));
  }
  const c10::Device device = UseDevice(c10::kCUDA, place.local_rank);
  try {
    return MakeNcclTransport(NcclLibrary(), device,
                             MakeGlooTransport(place, {}, host_groups, timeout), links, groups,
                             timeout);
  } catch (const c10::Error& error) {
    throw WorldError(Str("rank ", place.rank, ": CUDA: ", error.what_without_backtrace()));
  }
}

}  // namespace

extern "C" const CudaLibrary* strata_cuda_library() {
  static const CudaLibrary library = {MakeTransportOfGpus};
  return &library;
}

}  // namespace strata
