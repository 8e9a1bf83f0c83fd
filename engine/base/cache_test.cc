#include "engine/base/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/testing.h"

namespace strata {
namespace {

TEST(CacheFolder, TheFirstVariableThatIsSetDecides) {
  setenv("STRATA_CACHE", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  setenv("HOME", "/c", 1);
  EXPECT_EQ(CacheFolder(), "/a");
  setenv("STRATA_CACHE", "", 1);
  EXPECT_EQ(CacheFolder(), "/b/strata");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(CacheFolder(), "/c/.cache/strata");
  unsetenv("HOME");
  EXPECT_THROW(CacheFolder(), WorldError);
  EXPECT_THAT(ErrorOf([] { CacheFolder(); }), testing::HasSubstr("set STRATA_CACHE"));
}

}  // namespace
}  // namespace strata
