#include "engine/schedule/stage_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(Maps, Loop) {
  EXPECT_THAT(LoopMap(3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(LoopMap(3, 2), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(LoopMap(1, 3), ElementsAre(0, 0, 0));
}

TEST(Maps, V) {
  EXPECT_THAT(VMap(3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(VMap(3, 2), ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(VMap(2, 3), ElementsAre(0, 1, 1, 0, 0, 1));
}

}  // namespace
}  // namespace strata
