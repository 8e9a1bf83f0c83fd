// Finding and loading the engine's shared library.
#include "lua/host/engine_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/share.h"
#include "engine/base/text.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libstrata_engine.so";
constexpr char kPathInWorkspace[] = "lua/libstrata_engine.so";
constexpr char kEntry[] = "strata_engine_api";
constexpr char kVariable[] = "STRATA_ENGINE";
constexpr char kPolls[] = "GOMP_SPINCOUNT";

std::mutex mutex;
const EngineApi* loaded = nullptr;

/// Where the library may be, best first.
std::vector<fs::path> Candidates() {
  if (const char* path = std::getenv(kVariable); path && *path) return {path};
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> paths = {executable.parent_path() / kLibrary,
                                 executable.parent_path().parent_path() / kPathInWorkspace};
  if (const char* runfiles = std::getenv("RUNFILES_DIR")) {
    paths.push_back(fs::path(runfiles) / "strata" / kPathInWorkspace);
  }
  paths.push_back(fs::path(executable.string() + ".runfiles") / "strata" / kPathInWorkspace);
  return paths;
}

fs::path FindLibrary() {
  const std::vector<fs::path> paths = Candidates();
  for (const fs::path& path : paths) {
    if (std::error_code error; fs::exists(path, error)) return path;
  }
  std::vector<std::string> texts;
  for (const fs::path& path : paths) texts.push_back(path.string());
  throw WorldError(Str("the engine's library is not there; looked for ", Join(texts, ", "), " ($",
                       kVariable, " names another place)"));
}

/// What somebody without the right LibTorch can do about it; "" where the trouble is another one.
std::string Advice(const std::string& trouble) {
  const auto speaks_of = [&](const char* what) { return trouble.find(what) != trouble.npos; };
  if (!speaks_of("libtorch") && !speaks_of("libc10") && !speaks_of("undefined symbol")) return "";
  return "; it needs LibTorch 2.11: pip install torch==2.11.0, or name its folder by $LIBTORCH";
}

void* Open(const std::string& path) {
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string trouble = dlerror();
  throw WorldError(Str("cannot load the engine's library: ", trouble, Advice(trouble)));
}

/// Left alone, a thread of GNU OpenMP's that waits for the others polls for many milliseconds.
/// Where other programs run, those it waits for cannot run meanwhile. 30,000 looks, a millisecond
/// or so, cost small jobs on an idle machine nothing; 1,000 halve their pace, for each wait is a
/// sleep (docs/benchmarks.md has the figures). The library reads the variable when it is loaded.
void LimitPolling() {
  const bool is_chosen = std::getenv("OMP_WAIT_POLICY") || std::getenv(kPolls);
  if (!is_chosen) ::setenv(kPolls, "30000", 1);
}

const EngineApi* Load() {
  const fs::path path = FindLibrary();
  LimitPolling();
  // The loader takes what has the name already for what the engine is linked to.
  const std::string torch = TorchLibrary("libtorch_cpu.so");
  if (!torch.empty()) Open(torch);
  void* library = Open(path.string());
  using Entry = const EngineApi*();
  auto* entry = reinterpret_cast<Entry*>(dlsym(library, kEntry));
  if (!entry) throw WorldError(Str(path.string(), " is not the engine's library: ", dlerror()));
  return entry();
}

}  // namespace

const EngineApi& LoadEngine() {
  const std::lock_guard lock(mutex);
  if (!loaded) loaded = Load();
  return *loaded;
}

const EngineApi* LoadedEngine() {
  const std::lock_guard lock(mutex);
  return loaded;
}

}  // namespace strata::lua
