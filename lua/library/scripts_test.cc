// Runs the Lua scripts of testdata/, each a test of a part of the library.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lua/testing.h"

namespace strata::lua {
namespace {

/// All scripts of the folder but expect.lua, which they share.
std::vector<std::string> ScriptNames() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("lua/testdata")) {
    if (file.path().extension() == ".lua") names.push_back(file.path().stem());
  }
  std::erase(names, "expect");
  std::sort(names.begin(), names.end());
  return names;
}

class Scripts : public testing::TestWithParam<std::string> {};

TEST_P(Scripts, Pass) {
  State state;
  EXPECT_NO_THROW(state.RunFile(std::string("lua/testdata/") + GetParam() + ".lua"));
}

INSTANTIATE_TEST_SUITE_P(All, Scripts, testing::ValuesIn(ScriptNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace strata::lua
