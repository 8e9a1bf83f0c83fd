// NVTX's ranges, where its headers are.
#include "engine/runtime/watch/named_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define STRATA_HAS_NVTX 1
#else
#define STRATA_HAS_NVTX 0
#endif

namespace strata {

#if STRATA_HAS_NVTX
NamedRange::NamedRange(const char* name) { nvtxRangePushA(name); }
NamedRange::~NamedRange() { nvtxRangePop(); }
#else
NamedRange::NamedRange(const char*) {}
NamedRange::~NamedRange() = default;
#endif

bool HasNamedRanges() { return STRATA_HAS_NVTX; }

}  // namespace strata
