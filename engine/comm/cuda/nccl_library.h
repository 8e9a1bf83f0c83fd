// NCCL itself as NcclCalls. It is part of libstrata_cuda.so only.
#pragma once

#include "engine/comm/cuda/nccl_calls.h"

namespace strata {

NcclCalls& NcclLibrary();

}  // namespace strata
