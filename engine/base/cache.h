// The folder that all checkouts of a user share: LibTorch, data, Bazel's disk cache.
#pragma once

#include <string>

namespace strata {

/// $STRATA_CACHE, else $XDG_CACHE_HOME/strata, else ~/.cache/strata; tools/setup chooses the same.
/// Throws WorldError when none of the three variables says where.
std::string CacheFolder();

}  // namespace strata
