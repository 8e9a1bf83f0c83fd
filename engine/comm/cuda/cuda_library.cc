// Loads libstrata_cuda.so with dlopen() from beside the file that holds this code.
#include "engine/comm/cuda/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/share.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// The path of libstrata_cuda.so: $STRATA_CUDA, else beside the file that contains this function.
std::string LibraryPath() {
  if (const char* path = std::getenv("STRATA_CUDA")) return path;
  Dl_info info{};
  std::string self;
  if (dladdr(reinterpret_cast<const void*>(&LoadCudaLibrary), &info) != 0) self = info.dli_fname;
  return self.substr(0, self.rfind('/') + 1) + "libstrata_cuda.so";
}

const CudaLibrary* Load() {
  const std::string path = LibraryPath();
  // If the user has named a LibTorch, its libtorch_cuda.so is loaded first, and the loader then
  // finds it by name. Otherwise the loader finds it by the run path of the library at `path`.
  const std::string torch = TorchLibrary("libtorch_cuda.so");
  if (!torch.empty() && !dlopen(torch.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    throw WorldError(Str("cannot load ", torch, ": ", dlerror()));
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw WorldError(Str("cannot load ", path, ": ", dlerror()));
  using Entry = const CudaLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "strata_cuda_library"));
  if (entry == nullptr) throw WorldError(Str(path, " is not Strata's CUDA library: ", dlerror()));
  return entry();
}

}  // namespace

const CudaLibrary& LoadCudaLibrary() {
  static const CudaLibrary* library = Load();
  return *library;
}

}  // namespace strata
