#include "engine/comm/cuda/use_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "engine/base/error.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/cuda_library.h"

namespace strata {

namespace {

/// Returns the device type called `name`. For "cuda" it first loads the library that registers CUDA
/// with ATen.
c10::DeviceType Load(const std::string& name) {
  if (name == "cuda") LoadCudaLibrary();
  return c10::Device(name).type();
}

}  // namespace

int DeviceCount(const std::string& name) {
  return c10::impl::VirtualGuardImpl(Load(name)).deviceCount();
}

void LoadCudaBesideGpus() {
  if (GpuCount() == 0) return;
  try {
    LoadCudaLibrary();
  } catch (const WorldError&) {  // this LibTorch has no CUDA
  }
}

c10::Device UseDevice(const std::string& name, int local_rank) {
  return UseDevice(Load(name), local_rank);
}

c10::Device UseDevice(c10::DeviceType type, int local_rank) {
  if (type == c10::kCPU) return c10::kCPU;
  const c10::impl::VirtualGuardImpl devices(type);
  const int count = devices.deviceCount();
  if (count == 0) throw WorldError(Str("there is no ", type, " device here that can be used"));
  const c10::Device device(type, static_cast<c10::DeviceIndex>(local_rank % count));
  try {
    devices.setDevice(device);
    // The first call of a thread makes CUDA's context current. Without this call the first one
    // would be in cuBLAS, which then warns.
    devices.synchronizeDevice(device.index());
  } catch (const c10::Error& error) {
    throw WorldError(Str(device, ": ", error.what_without_backtrace()));
  }
  return device;
}

}  // namespace strata
