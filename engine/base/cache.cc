#include "engine/base/cache.h"

#include <cstdlib>

#include "engine/base/error.h"

namespace strata {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string CacheFolder() {
  if (const std::string cache = Variable("STRATA_CACHE"); !cache.empty()) return cache;
  if (const std::string xdg = Variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/strata";
  if (const std::string home = Variable("HOME"); !home.empty()) return home + "/.cache/strata";
  throw WorldError("no folder for caches: set STRATA_CACHE, XDG_CACHE_HOME or HOME");
}

}  // namespace strata
