#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/launch.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/gpu_launcher.h"

namespace strata {
namespace {

bool AreOff() {
  static const bool off = [] {
    const char* const chosen = std::getenv("STRATA_KERNELS");
    const std::string name = chosen ? chosen : "own";
    if (name != "own" && name != "aten") {
      throw ConfigError(Str("STRATA_KERNELS: expected \"own\" or \"aten\", got \"", name, "\""));
    }
    return name == "aten";
  }();
  return off;
}

/// GpuLauncher(), or null for a GPU that is too old. Each GPU is asked once.
KernelLauncher* LauncherOfGpu(int device) {
  constexpr int kMostGpus = 64;
  static std::array<std::once_flag, kMostGpus> asked;
  static std::array<KernelLauncher*, kMostGpus> launchers = {};
  std::call_once(asked.at(device), [&] {
    if (HasGpuForKernels(device)) launchers[device] = &GpuLauncher();
  });
  return launchers[device];
}

KernelLauncher*& LauncherOfType(c10::DeviceType type) {
  static std::array<KernelLauncher*, c10::COMPILE_TIME_MAX_DEVICE_TYPES> launchers = {};
  return launchers.at(static_cast<size_t>(type));
}

}  // namespace

KernelLauncher* KernelsFor(const at::Tensor& x) {
  const c10::Device device = x.device();
  KernelLauncher* const of_test = LauncherOfType(device.type());
  if ((!of_test && !device.is_cuda()) || AreOff()) return nullptr;
  return of_test ? of_test : LauncherOfGpu(device.index());
}

void SetKernelLauncher(c10::DeviceType type, KernelLauncher* launcher) {
  LauncherOfType(type) = launcher;
}

std::optional<KernelElement> KernelElementOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return KernelElement::kFp32;
    case at::kBFloat16:
      return KernelElement::kBf16;
    case at::kHalf:
      return KernelElement::kFp16;
    default:
      return std::nullopt;
  }
}

bool AreForKernels(std::initializer_list<at::Tensor> tensors) {
  constexpr uintptr_t kVector = 16;
  return std::ranges::all_of(tensors, [](const at::Tensor& t) {
    return t.defined() && t.numel() > 0 && t.is_contiguous() &&
           reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kVector == 0;
  });
}

at::Tensor ForKernels(const at::Tensor& tensor) {
  return AreForKernels({tensor}) ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

KernelArgument Memory(const at::Tensor& tensor) {
  if (!tensor.defined()) return {nullptr, 0};
  int64_t elements = tensor.numel() > 0 ? 1 : 0;
  for (int64_t dim = 0; dim < tensor.dim() && elements > 0; ++dim) {
    elements += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {const_cast<void*>(tensor.const_data_ptr()),
          static_cast<size_t>(elements) * tensor.element_size()};
}

void LaunchOn(const at::Tensor& x, KernelLauncher& launcher, const KernelCall& call) {
  const c10::Device device = x.device();
  if (device.is_cpu()) return launcher.Launch(call, 0, nullptr);
  const c10::DeviceGuard guard(device);
  const c10::impl::VirtualGuardImpl implementation(device.type());
  void* const stream = implementation.getStreamNativeHandle(implementation.getStream(device));
  launcher.Launch(call, device.index(), stream);
}

std::string DescribeKernels(int device) {
  return AreOff() ? "off: STRATA_KERNELS=aten" : DescribeGpuKernels(device);
}

}  // namespace strata
