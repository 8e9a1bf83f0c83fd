// How much memory tensors use, on whatever device.
#pragma once

#include <c10/core/Device.h>

#include "engine/base/tensors/allocator.h"

namespace strata {

/// On the CPU that of the account; on an accelerator that of all ranks of this process that share
/// it, by the statistics of its own allocator.
MemoryUse MemoryOn(c10::Device device, int account);
void ResetPeakMemoryOn(c10::Device device, int account);

}  // namespace strata
