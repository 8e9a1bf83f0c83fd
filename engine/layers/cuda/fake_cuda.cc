// A driver of CUDA's for a test, libcuda.so.1: it has two GPUs, of the compute capability in
// $FAKE_CAPABILITY ("90"), and writes down what it is asked.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string calls;
thread_local void* current = nullptr;
constexpr int kOutOfMemory = 2;

int Capability() {
  const char* chosen = std::getenv("FAKE_CAPABILITY");
  return chosen ? std::atoi(chosen) : 90;
}
std::string Text(const void* number) { return std::to_string(reinterpret_cast<intptr_t>(number)); }

}  // namespace

extern "C" {

const char* fake_cuda_calls() { return calls.c_str(); }

int cuInit(unsigned) { return 0; }
/// NVRTC asks for it, and does without.
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kOutOfMemory;
}
int cuGetErrorString(int, const char** text) {
  *text = "out of memory";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? 0 : kOutOfMemory;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? Capability() / 10 : Capability() % 10;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(intptr_t{100} + device);
  calls += "retain " + std::to_string(device) + "\n";
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = context;
  calls += "set " + Text(context) + "\n";
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  if (std::memcmp(image, "\177ELF", 4) != 0) return kOutOfMemory;
  *module = reinterpret_cast<void*>(intptr_t{1000});
  calls += "load in " + Text(current) + "\n";
  return 0;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = const_cast<char*>(name);
  return 0;
}
/// The arguments are those of swiglu.
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned, unsigned block_x,
                   unsigned, unsigned, unsigned, void* stream, void** arguments, void**) {
  if (grid_x == 0) return kOutOfMemory;
  calls += std::string(static_cast<const char*>(function)) + " " + std::to_string(grid_x) + "x" +
           std::to_string(grid_y) + "x" + std::to_string(block_x) + " stream " + Text(stream) +
           " arguments " + Text(*static_cast<void**>(arguments[0])) + " " +
           std::to_string(*static_cast<long long*>(arguments[3])) + "\n";
  return 0;
}
}
