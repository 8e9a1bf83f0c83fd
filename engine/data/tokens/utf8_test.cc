#include "engine/data/tokens/utf8.h"

#include <gtest/gtest.h>

namespace strata::data {
namespace {

TEST(FirstCharacter, ReadsAnyLength) {
  const struct {
    std::string_view text;
    char32_t code;
    size_t bytes;
  } kCases[] = {{"a\xcc", U'a', 1},
                {"\x7f", 0x7f, 1},
                {"\xc2\x80", 0x80, 2},
                {"\xdf\xbfx", 0x7ff, 2},
                {"\xe0\xa0\x80", 0x800, 3},
                {"\xed\x9f\xbf", 0xd7ff, 3},
                {"\xef\xbf\xbf", 0xffff, 3},
                {"\xf0\x90\x80\x80", 0x10000, 4},
                {"\xf4\x8f\xbf\xbf", 0x10ffff, 4}};
  for (const auto& [text, code, bytes] : kCases) {
    EXPECT_EQ(FirstCharacter(text).code, code);
    EXPECT_EQ(FirstCharacter(text).bytes, bytes) << static_cast<uint32_t>(code);
    EXPECT_EQ(CharacterBytes(text[0]), bytes) << static_cast<uint32_t>(code);
  }
}

TEST(FirstCharacter, IsNoneWhereTheTextIsNotUtf8) {
  const std::pair<std::string_view, const char*> kCases[] = {
      {"\x80", "a continuation byte"},
      {"\xc3", "cut off"},
      {"\xe2\x82", "cut off"},
      {"\xf0\x9f\x98", "cut off"},
      {"\xc3\x28", "no continuation"},
      {"\xe2\x82\x28", "no continuation"},
      {"\xc1\xbf", "longer than needed"},
      {"\xe0\x9f\xbf", "longer than needed"},
      {"\xf0\x8f\xbf\xbf", "longer than needed"},
      {"\xed\xa0\x80", "a surrogate"},
      {"\xed\xbf\xbf", "a surrogate"},
      {"\xf4\x90\x80\x80", "beyond the last one"},
      {"\xf8\x88\x80\x80\x80", "five bytes"},
      {"\xff\xbf\xbf\xbf", "no first byte"}};
  for (const auto& [text, why] : kCases) EXPECT_EQ(FirstCharacter(text).bytes, 0u) << why;
}

}  // namespace
}  // namespace strata::data
