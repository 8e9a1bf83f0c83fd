#include "engine/base/tensors/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace strata {

MemoryUse MemoryOn(c10::Device device, int account) {
  if (device.is_cpu()) return MemoryOf(account);
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const c10::CachingAllocator::Stat& all_pools = stats.allocated_bytes[0];
  return {all_pools.current, all_pools.peak};
}

void ResetPeakMemoryOn(c10::Device device, int account) {
  if (device.is_cpu()) return ResetPeakMemory(account);
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

}  // namespace strata
