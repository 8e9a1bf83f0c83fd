// NCCL itself, of the CUDA library.
#pragma once

#include "engine/comm/transports/nccl_calls.h"

namespace strata {

NcclCalls& NcclLibrary();

}  // namespace strata
