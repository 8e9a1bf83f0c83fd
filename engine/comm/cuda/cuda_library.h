// Loads libstrata_cuda.so, the part of Strata that needs CUDA and NCCL. Only jobs on GPUs load it,
// since libtorch_cuda costs each process 0.3 s and 350 MB. Loading it also registers CUDA's kernels
// with ATen, so it must be loaded before the first CUDA tensor is made.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// The library's functions. They throw Strata's exceptions only (engine/base/error.h).
struct CudaLibrary {
  /// Meets the other ranks as MakeGlooTransport() does and uses the GPU with the number
  /// place.local_rank. NCCL (nccl.h) carries `links` and `groups`; Gloo carries the control data
  /// and the `host_groups`, whose tensors are in the host's memory. Throws WorldError when there is
  /// no such GPU.
  std::unique_ptr<Transport> (*make_nccl_transport)(const RankPlace& place,
                                                    const std::vector<LinkSpec>& links,
                                                    const std::vector<GroupSpec>& groups,
                                                    const std::vector<GroupSpec>& host_groups,
                                                    double timeout);
};

/// Loads libstrata_cuda.so from the path in $STRATA_CUDA, else from the folder of the library or
/// executable that contains this function. Later calls return the library of the first call. Throws
/// WorldError with the path and the text of dlerror().
const CudaLibrary& LoadCudaLibrary();

/// The function of libstrata_cuda.so that LoadCudaLibrary() looks up.
extern "C" const CudaLibrary* strata_cuda_library();

}  // namespace strata
