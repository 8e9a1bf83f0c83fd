// The second library: what needs CUDA and NCCL. Loaded where a job runs on GPUs, since loading
// libtorch_cuda takes 0.3 s and 350 MB a process. It also registers CUDA's kernels with ATen, so it
// must be loaded before the first CUDA tensor.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// What the library offers. Its functions throw strata's exceptions only.
struct CudaLibrary {
  /// GPUs that CUDA can use now.
  int (*device_count)();
  /// Makes GPU `device` the one of the calling thread.
  void (*set_device)(int device);
  /// MakeNcclTransport() of nccl.h.
  std::unique_ptr<Transport> (*make_nccl_transport)(const RankPlace& place,
                                                    const std::vector<LinkSpec>& links,
                                                    const std::vector<GroupSpec>& groups,
                                                    const std::vector<GroupSpec>& host_groups,
                                                    double timeout);
};

/// Loads libstrata_cuda.so, which lies beside the library or executable that this code is in; a
/// second call returns the first one's. Throws WorldError that says where it was looked for and
/// what the loader said.
const CudaLibrary& LoadCudaLibrary();

/// The entry of libstrata_cuda.so.
extern "C" const CudaLibrary* strata_cuda_library();

}  // namespace strata
