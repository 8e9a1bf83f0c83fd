// The cache folder that all checkouts of one user share. It holds LibTorch, data sets and Bazel's
// disk cache.
#pragma once

#include <string>

namespace strata {

/// The folder's path: $STRATA_CACHE, else $XDG_CACHE_HOME/strata, else $HOME/.cache/strata. The
/// folder may not exist yet. tools/setup chooses the same path.
/// Throws WorldError when none of the three variables is set.
std::string CacheFolder();

}  // namespace strata
