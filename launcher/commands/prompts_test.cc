#include "launcher/commands/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PromptsIn, ALineIsAPrompt) {
  EXPECT_THAT(PromptsIn("Once upon\n\n a time, 5 \nlast"),
              ElementsAre("Once upon", " a time, 5 ", "last"));
  EXPECT_THAT(PromptsIn("\n\n"), IsEmpty());
}

TEST(PromptsIn, LinesOfWindowsEndBeforeTheirReturn) {
  EXPECT_THAT(PromptsIn("Once upon\r\n\r\na\rb\r\nlast\r"),
              ElementsAre("Once upon", "a\rb", "last"));
  EXPECT_THAT(PromptsIn("\r\n"), IsEmpty());
}

}  // namespace
}  // namespace strata::launcher
