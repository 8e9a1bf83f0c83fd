#include "tests/deadline/deadline.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace strata {
namespace {

TEST(Deadline, ATestThatHangsIsNamed) {
  EXPECT_EXIT(
      {
        EndTestsAfter(0.02);
        for (;;) ::pause();
      },
      testing::ExitedWithCode(1), "HANGS.*Deadline.ATestThatHangsIsNamed");
}

}  // namespace
}  // namespace strata
