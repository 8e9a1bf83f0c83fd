// The memory that tensors use, on a CPU or an accelerator.
#pragma once

#include <c10/core/Device.h>

#include "engine/base/tensors/allocator.h"

namespace strata {

/// On the CPU this is the use of `account` (allocator.h). On an accelerator it is the use of all
/// ranks of this process that share the device, from the statistics of torch's allocator for it.
MemoryUse MemoryOn(c10::Device device, int account);
void ResetPeakMemoryOn(c10::Device device, int account);

}  // namespace strata
