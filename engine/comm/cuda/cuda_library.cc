// Opens the library beside the file that holds this code.
#include "engine/comm/cuda/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/share.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// $STRATA_CUDA, else the path beside the file that contains this function.
std::string LibraryPath() {
  if (const char* path = std::getenv("STRATA_CUDA")) return path;
  Dl_info info{};
  std::string self;
  if (dladdr(reinterpret_cast<const void*>(&LoadCudaLibrary), &info) != 0) self = info.dli_fname;
  return self.substr(0, self.rfind('/') + 1) + "libstrata_cuda.so";
}

const CudaLibrary* Load() {
  const std::string path = LibraryPath();
  // Where the user names a LibTorch, the loader finds this one by its name; else `path` says where.
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
