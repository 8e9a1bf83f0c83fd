// A kernel is loaded into the context that LibTorch uses, the device's primary one. A thread that
// has not called CUDA yet has no current context, so each launch sets it where it is another.
#include "engine/layers/cuda/gpu_launcher.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/gpu_compiler.h"
#include "engine/layers/cuda/kernel_sources.h"

namespace strata {
namespace {

// ---- The functions of the driver that are used, as cuda.h declares them.

using Context = struct ContextOfCuda*;
using Module = struct ModuleOfCuda*;
using Function = struct FunctionOfCuda*;
using Stream = struct StreamOfCuda*;

struct Driver {
  int (*Init)(unsigned flags);
  int (*GetErrorString)(int, const char**);
  int (*DeviceGet)(int* device, int ordinal);
  int (*DeviceGetAttribute)(int* value, int attribute, int device);
  int (*DevicePrimaryCtxRetain)(Context*, int device);
  int (*CtxGetCurrent)(Context*);
  int (*CtxSetCurrent)(Context);
  int (*ModuleLoadData)(Module*, const void*);
  int (*ModuleGetFunction)(Function*, Module, const char*);
  int (*LaunchKernel)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream,
                      void** arguments, void** extra);
};

template <class Type>
void Find(void* library, const char* name, Type*& function) {
  function = reinterpret_cast<Type*>(dlsym(library, name));
  if (function == nullptr) throw WorldError(Str("CUDA's driver has no ", name));
}

const Driver& Cuda() {
  static const Driver driver = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) throw WorldError(Str("cannot load CUDA's driver: ", dlerror()));
    Driver found;
    Find(library, "cuInit", found.Init);
    Find(library, "cuGetErrorString", found.GetErrorString);
    Find(library, "cuDeviceGet", found.DeviceGet);
    Find(library, "cuDeviceGetAttribute", found.DeviceGetAttribute);
    Find(library, "cuDevicePrimaryCtxRetain", found.DevicePrimaryCtxRetain);
    Find(library, "cuCtxGetCurrent", found.CtxGetCurrent);
    Find(library, "cuCtxSetCurrent", found.CtxSetCurrent);
    Find(library, "cuModuleLoadData", found.ModuleLoadData);
    Find(library, "cuModuleGetFunction", found.ModuleGetFunction);
    Find(library, "cuLaunchKernel", found.LaunchKernel);
    found.Init(0);  // an error comes again with the first use
    return found;
  }();
  return driver;
}

void Check(int result, std::string_view what) {
  if (result == 0) return;
  const char* text = nullptr;
  Cuda().GetErrorString(result, &text);
  throw WorldError(Str("CUDA: ", what, ": ", text ? text : "unknown error", " (", result, ")"));
}

struct Capability {
  int major = 0, minor = 0;
};

int HandleOf(int device) {
  int handle = 0;
  Check(Cuda().DeviceGet(&handle, device), Str("cannot find GPU ", device));
  return handle;
}

Capability CapabilityOf(int device) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  const int handle = HandleOf(device);
  Capability found;
  Check(Cuda().DeviceGetAttribute(&found.major, kMajor, handle), "compute capability");
  Check(Cuda().DeviceGetAttribute(&found.minor, kMinor, handle), "compute capability");
  return found;
}

class Launcher : public KernelLauncher {
 public:
  void Launch(const KernelCall& call, int device, void* stream) override {
    const std::lock_guard lock(mutex_);
    MakeCurrent(device);
    std::vector<void*> arguments;
    for (const KernelArgument& argument : call.arguments) {
      arguments.push_back(const_cast<KernelArgument::Number*>(&argument.number));
    }
    Check(Cuda().LaunchKernel(FunctionOf(call, device), call.grid_x, call.grid_y, 1, call.block, 1,
                              1, /*shared_bytes=*/0, static_cast<Stream>(stream), arguments.data(),
                              /*extra=*/nullptr),
          Str("cannot launch ", call.name));
  }

 private:
  using Key = std::tuple<int, KernelElement, std::string>;

  void MakeCurrent(int device) {
    Context& own = contexts_[device];
    if (!own) {
      Check(Cuda().DevicePrimaryCtxRetain(&own, HandleOf(device)), "no context");
    }
    Context current = nullptr;
    Check(Cuda().CtxGetCurrent(&current), "no current context");
    if (current != own) Check(Cuda().CtxSetCurrent(own), "cannot set the context");
  }

  Function FunctionOf(const KernelCall& call, int device) {
    Function& function = functions_[Key(device, call.element, call.name)];
    if (function) return function;
    for (const KernelEntry& kernel : Kernels()) {
      if (std::string_view(kernel.name) != call.name) continue;
      Module& loaded = modules_[Key(device, call.element, kernel.file)];
      if (!loaded) {
        const std::string cubin =
            CompiledForGpu(KernelSource(kernel.file, call.element), ArchitectureOf(device));
        Check(Cuda().ModuleLoadData(&loaded, cubin.data()), Str("cannot load ", kernel.file));
      }
      Check(Cuda().ModuleGetFunction(&function, loaded, kernel.name), Str("no ", kernel.name));
    }
    return function;
  }

  std::mutex mutex_;
  std::map<int, Context> contexts_;
  std::map<Key, Module> modules_;      // by file
  std::map<Key, Function> functions_;  // by kernel
};

}  // namespace

KernelLauncher& GpuLauncher() {
  static auto* const launcher = new Launcher;  // never destroyed: CUDA may have ended before
  return *launcher;
}

std::string ArchitectureOf(int device) {
  const Capability capability = CapabilityOf(device);
  return Str("sm_", capability.major, capability.minor);
}

bool HasGpuForKernels(int device) {
  constexpr int kLeast = 8;
  return CapabilityOf(device).major >= kLeast;
}

std::string DescribeGpuKernels(int device) {
  const std::string architecture = ArchitectureOf(device);
  if (!HasGpuForKernels(device)) {
    return Str("none for cuda:", device, " (", architecture, "): they need sm_80 or later");
  }
  int files = 0, compiled = 0;
  for (const std::string& file : KernelFiles()) {
    for (const KernelElement element : kKernelElements) {
      ++files;
      compiled += IsCompiledForGpu(KernelSource(file, element), architecture);
    }
  }
  return Str(Kernels().size(), " for cuda:", device, " (", architecture, ") by NVRTC ",
             NvrtcVersion(), "; ", compiled, " of ", files,
             " files are compiled, the others are at their first use");
}

}  // namespace strata
