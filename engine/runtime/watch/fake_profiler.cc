// A profiler for tests: a library that NVTX loads because $NVTX_INJECTION64_PATH names it. It
// appends to the file $FAKE_PROFILER_LOG a line "> name" for each range that begins and "<" for
// each that ends.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

void Log(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static std::FILE* file = std::fopen(std::getenv("FAKE_PROFILER_LOG"), "a");
  if (!file) std::abort();
  std::fprintf(file, "%s\n", line.c_str());
  std::fflush(file);
}

int OnPush(const char* name) {
  Log(std::string("> ") + name);
  return 0;
}

int OnPop() {
  Log("<");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* table =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (!table || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size)) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&OnPush);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&OnPop);
  return 1;
}
#endif
