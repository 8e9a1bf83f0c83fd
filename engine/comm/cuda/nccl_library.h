// NCCL itself, of the CUDA library.
#pragma once

#include "engine/comm/cuda/nccl_calls.h"

namespace strata {

NcclCalls& NcclLibrary();

}  // namespace strata
