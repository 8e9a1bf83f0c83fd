#include "engine/base/machine/gpu.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/base/text.h"

namespace strata {
namespace {

/// True for "nvidia7"; false for "nvidia-uvm" and "nvidiactl".
bool IsDevice(const std::string& name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The number of entries before the first invalid one. CUDA ignores an invalid entry and all after
/// it.
int VisibleCount(const std::string& visible) {
  if (Trim(visible).empty()) return 0;
  int count = 0;
  for (const std::string& entry : Split(visible, ',')) {
    if (Trim(entry).empty() || Trim(entry).starts_with("-")) break;
    ++count;
  }
  return count;
}

int DeviceCount(const std::string& dev) {
  int devices = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dev, error)) {
    devices += IsDevice(entry.path().filename().string());
  }
  return devices;
}

}  // namespace

int GpuCount(const std::string& dev) {
  const int devices = DeviceCount(dev);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? std::min(devices, VisibleCount(visible)) : devices;
}

bool HasGpuEach(int ranks, const std::string& dev) {
  const int gpus = GpuCount(dev);
  return ranks <= gpus || (gpus == 1 && DeviceCount(dev) > 1);
}

}  // namespace strata
