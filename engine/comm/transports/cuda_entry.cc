// The entry function of libstrata_cuda.so: the table of the functions in cuda_library.h.
#include <c10/cuda/CUDAFunctions.h>

#include "engine/base/error.h"
#include "engine/comm/transports/cuda_library.h"
#include "engine/comm/transports/nccl.h"

namespace strata {
namespace {

int DeviceCount() { return c10::cuda::device_count(); }

void SetDevice(int device) {
  try {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  } catch (const c10::Error& error) {
    throw WorldError(error.what_without_backtrace());
  }
}

}  // namespace

extern "C" const CudaLibrary* strata_cuda_library() {
  static const CudaLibrary library = {DeviceCount, SetDevice, MakeNcclTransport};
  return &library;
}

}  // namespace strata
