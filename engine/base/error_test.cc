#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "engine/base/testing.h"

namespace strata {
namespace {

template <class Thrown>
std::string TextOf(const std::string& text) {
  return ErrorOf([&] { throw Thrown(text); });
}

TEST(Error, KeepsItsText) {
  EXPECT_EQ(TextOf<Error>("a"), "a");
  EXPECT_EQ(TextOf<ConfigError>("steps: expected 1"), "steps: expected 1");
  EXPECT_EQ(TextOf<WorldError>("two\nlines"), "two\nlines");
}

TEST(Error, TheUsersFaultAndTheWorldsAreDifferent) {
  EXPECT_THROW(ConfigErrorOf([] { throw WorldError("disk full"); }), WorldError);
  EXPECT_EQ(ConfigErrorOf([] { throw ConfigError("a"); }), "a");
  EXPECT_EQ(ConfigErrorOf([] {}), "no error");
  EXPECT_FALSE((std::is_base_of_v<ConfigError, WorldError>));
  EXPECT_FALSE((std::is_base_of_v<WorldError, ConfigError>));
}

TEST(Error, IsAStandardException) {
  EXPECT_THROW(throw ConfigError("a"), std::runtime_error);
  EXPECT_THROW(throw WorldError("a"), std::exception);
}

}  // namespace
}  // namespace strata
