// Finds and loads the engine's shared library.
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

constexpr char kPathInWorkspace[] = "lua/libstrata_engine.so";
constexpr char kEntry[] = "strata_engine_api";
constexpr char kVariable[] = "STRATA_ENGINE";
constexpr char kPolls[] = "GOMP_SPINCOUNT";

std::mutex mutex;
const EngineApi* loaded = nullptr;

std::string FindLibrary() {
  const std::vector<std::string> paths = LibraryPlaces(kVariable, kPathInWorkspace);
  for (const std::string& path : paths) {
    if (std::error_code error; fs::exists(path, error)) return path;
  }
  throw WorldError(Str("the engine's library is not there; looked for ", Join(paths, ", "), " ($",
                       kVariable, " names another place)"));
}

/// A hint for users without the right LibTorch; "" if the loader's message has another cause.
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

/// Limits how long the threads of GNU OpenMP poll while they wait for each other. By default such a
/// thread polls for many milliseconds, and if other programs run, it keeps the threads it waits for
/// off the processor. 30,000 polls, about a millisecond, cost small jobs on an idle machine
/// nothing; 1,000 polls halve their speed, because each wait becomes a sleep (figures in
/// docs/benchmarks.md). The OpenMP library reads the variable when it is loaded, so this must run
/// before.
void LimitPolling() {
  const bool is_chosen = std::getenv("OMP_WAIT_POLICY") || std::getenv(kPolls);
  if (!is_chosen) ::setenv(kPolls, "30000", 1);
}

const EngineApi* Load() {
  const std::string path = FindLibrary();
  LimitPolling();
  // A library that is already loaded under this name satisfies the engine's dependency on it.
  const std::string torch = TorchLibrary("libtorch_cpu.so");
  if (!torch.empty()) Open(torch);
  void* library = Open(path);
  using Entry = const EngineApi*();
  auto* entry = reinterpret_cast<Entry*>(dlsym(library, kEntry));
  if (!entry) throw WorldError(Str(path, " is not the engine's library: ", dlerror()));
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
