#include "engine/data/sample_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PictureOf, TwoPixelsAreALetter) {
  const float grey[] = {0, 1, 0, 1,  //
                        0, 1, 1, 1};
  EXPECT_EQ(PictureOf(grey, 1, 2, 4, 10, false), " \u2588\u2592\u2588\n");
  const float pixel[] = {1, 0};
  EXPECT_EQ(PictureOf(pixel, 1, 2, 1, 10, true),
            "\x1b[38;2;255;255;255m\x1b[48;2;0;0;0m\u2580\x1b[0m\n");
  const float red[] = {1, 1, 0, 0, 0, 0};
  EXPECT_THAT(PictureOf(red, 3, 2, 1, 10, true), HasSubstr("\x1b[38;2;255;0;0m"));
}

TEST(PictureOf, LargeImagesBecomeSmall) {
  const std::vector<float> white(1 * 100 * 200, 1);
  const std::string picture = PictureOf(white.data(), 1, 100, 200, 40, false);
  EXPECT_EQ(Split(picture, '\n').size(), 11u) << "20 rows of pixels, and the end";
  EXPECT_EQ(picture.substr(0, 3), "\u2588");
}

class DescribeTest : public DatasetTest {
 protected:
  std::string Describe(const Value& source) {
    FakeDataScript script;
    context_.script = &script;
    return DescribeWithPicture(*OpenDataset(SpecOf(source, context_), context_));
  }
};

TEST_F(DescribeTest, EverySourceIsShown) {
  for (const Value& source : EverySource(folder_)) {
    EXPECT_THAT(Describe(source), HasSubstr(" -> ")) << source.ToLua();
  }
}

TEST_F(DescribeTest, ImagesHaveAPicture) {
  const Value image = MakeDataSource("images", {}, {{"shape", Value::IntList({1, 8, 8})}}, "");
  EXPECT_THAT(Describe(image), HasSubstr("float32 (1, 8, 8) -> int64 (), 10 classes\nsample 0:\n"));
  const Value tokens = MakeDataSource("tokens", {5}, {{"length", 3}}, "");
  EXPECT_THAT(Describe(tokens), Not(HasSubstr("sample 0")));
}

}  // namespace
}  // namespace strata
