// Runs the Lua scripts of testdata/, each a test of a part of the library.

#include <gtest/gtest.h>

#include "lua/testing.h"

namespace strata::lua {
namespace {

class Scripts : public testing::TestWithParam<const char*> {};

TEST_P(Scripts, Pass) {
  State state;
  EXPECT_NO_THROW(state.RunFile(std::string("lua/testdata/") + GetParam() + ".lua"));
}

INSTANTIATE_TEST_SUITE_P(All, Scripts,
                         testing::Values("base", "data", "jobs", "laws", "layers", "own_layers",
                                         "partition", "roundtrips", "schedule", "topology",
                                         "values"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace strata::lua
