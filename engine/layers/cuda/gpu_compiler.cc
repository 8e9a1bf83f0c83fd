#include "engine/layers/cuda/gpu_compiler.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// ---- The functions of NVRTC that are used, as nvrtc.h declares them. LibTorch for CPUs lacks that
// header.

using Program = struct ProgramOfNvrtc*;

struct Nvrtc {
  int (*Version)(int* major, int* minor);
  int (*CreateProgram)(Program*, const char* source, const char* name, int headers,
                       const char* const* texts, const char* const* names);
  int (*CompileProgram)(Program, int count, const char* const* options);
  int (*GetProgramLogSize)(Program, size_t*);
  int (*GetProgramLog)(Program, char*);
  int (*GetCUBINSize)(Program, size_t*);
  int (*GetCUBIN)(Program, char*);
  int (*DestroyProgram)(Program*);
  const char* (*GetErrorString)(int);
};

constexpr const char* kLibrary = "libnvrtc.so.13";
constexpr const char* kRemedy = "; STRATA_KERNELS=aten trains without Strata's own kernels";

/// Loads NVRTC by its name, otherwise from beside CUDA's runtime, where wheels and archives put it.
void* OpenLibrary() {
  if (void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string problem = dlerror();
  void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  link_map* place = nullptr;
  if (runtime && dlinfo(runtime, RTLD_DI_LINKMAP, &place) == 0) {
    const fs::path beside = fs::path(place->l_name).parent_path() / kLibrary;
    if (void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw WorldError(Str("cannot load NVRTC, which compiles Strata's kernels: ", problem, kRemedy));
}

template <class Function>
void Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw WorldError(Str(kLibrary, " has no ", name, kRemedy));
}

const Nvrtc& Library() {
  static const Nvrtc nvrtc = [] {
    void* library = OpenLibrary();
    Nvrtc found;
    Find(library, "nvrtcVersion", found.Version);
    Find(library, "nvrtcCreateProgram", found.CreateProgram);
    Find(library, "nvrtcCompileProgram", found.CompileProgram);
    Find(library, "nvrtcGetProgramLogSize", found.GetProgramLogSize);
    Find(library, "nvrtcGetProgramLog", found.GetProgramLog);
    Find(library, "nvrtcGetCUBINSize", found.GetCUBINSize);
    Find(library, "nvrtcGetCUBIN", found.GetCUBIN);
    Find(library, "nvrtcDestroyProgram", found.DestroyProgram);
    Find(library, "nvrtcGetErrorString", found.GetErrorString);
    return found;
  }();
  return nvrtc;
}

std::vector<std::string> OptionsFor(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++17"};
}

/// A compiled file ends with the digest of what comes before, so that half a file is noticed.
constexpr size_t kDigest = 16;

std::optional<std::string> ReadCompiled(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() <= kDigest) return std::nullopt;
  const std::string digest = text.substr(text.size() - kDigest);
  text.resize(text.size() - kDigest);
  return Digest(text) == digest ? std::optional(std::move(text)) : std::nullopt;
}

/// Writes beside the place and renames, so that no other process reads half a file.
void WriteCompiled(const std::string& path, const std::string& cubin) {
  const std::string beside = Str(path, ".", ::getpid());
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::ofstream file(beside, std::ios::binary);
  file << cubin << Digest(cubin);
  file.close();
  if (file) fs::rename(beside, path, error);
  if (!file || error) fs::remove(beside, error);
}

}  // namespace

std::string NvrtcVersion() {
  int major = 0, minor = 0;
  Library().Version(&major, &minor);
  return Str(major, ".", minor);
}

std::string CompileForGpu(const std::string& source, const std::string& architecture) {
  const Nvrtc& nvrtc = Library();
  const std::vector<std::string> texts = OptionsFor(architecture);
  std::vector<const char*> options;
  for (const std::string& text : texts) options.push_back(text.c_str());
  Program program = nullptr;
  std::string log, cubin;
  size_t size = 0;
  int result = nvrtc.CreateProgram(&program, source.c_str(), "kernels", 0, nullptr, nullptr);
  if (result == 0) {
    result = nvrtc.CompileProgram(program, static_cast<int>(options.size()), options.data());
    if (nvrtc.GetProgramLogSize(program, &size) == 0) {
      log.resize(size);
      nvrtc.GetProgramLog(program, log.data());
    }
    if (result == 0) result = nvrtc.GetCUBINSize(program, &size);
    if (result == 0) {
      cubin.resize(size);
      result = nvrtc.GetCUBIN(program, cubin.data());
    }
    nvrtc.DestroyProgram(&program);
  }
  if (result != 0) {
    throw WorldError(Str("NVRTC ", NvrtcVersion(), " cannot compile Strata's kernels for ",
                         architecture, ": ", nvrtc.GetErrorString(result), "\n", log.c_str(),
                         kRemedy));
  }
  return cubin;
}

std::string PathOfCompiled(const std::string& source, const std::string& architecture) {
  const std::string key = Str(NvrtcVersion(), "\n", Join(OptionsFor(architecture), " "), "\n");
  return Str(CacheFolder(), "/kernels/", architecture, "-", Digest(key + source), ".cubin");
}

std::string CompiledForGpu(const std::string& source, const std::string& architecture) {
  const std::string path = PathOfCompiled(source, architecture);
  if (std::optional<std::string> known = ReadCompiled(path)) return std::move(*known);
  std::string cubin = CompileForGpu(source, architecture);
  WriteCompiled(path, cubin);
  return cubin;
}

bool IsCompiledForGpu(const std::string& source, const std::string& architecture) {
  return ReadCompiled(PathOfCompiled(source, architecture)).has_value();
}

}  // namespace strata
