#include "engine/checkpoint/files/tensor_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/text.h"

namespace strata {
namespace {

TEST(TensorNameTest, Right) {
  const std::string kNames[] = {
      "a",
      "3.weight",
      "3.weight#exp_avg",
      "3.weight[0:4, 3:6].flat[2:7]",
      " ",
      "a b",
      "\"",
      "\\",
      "../../etc/passwd",
      "/",
      ".",
      "__metadata",
      "__metadata__ ",
      "__METADATA__",
      "\u00a0",  // the first character after the second set of control characters
      "\u00e9",
      "\u20ac",
      "\U0001F600",
      "\U0010FFFF",
      "\u0442\u0435\u043d\u0437\u043e\u0440",
      std::string(1000, 'a'),
  };
  for (const std::string& name : kNames) {
    EXPECT_EQ(TroubleWithTensorName(name), "") << name;
    EXPECT_EQ(QuotedName(name), Str('"', name, '"'));
  }
}

TEST(TensorNameTest, Wrong) {
  const std::string kUtf8 = "it is not UTF-8", kControl = "it has a control character";
  const struct {
    std::string name, trouble, quoted;
  } kCases[] = {
      {"", "it is empty", R"("")"},
      {"__metadata__", "the format uses it itself", R"("__metadata__")"},
      {std::string(1001, 'a'), "it is longer than 1000 bytes", Str('"', std::string(80, 'a'), '"')},
      {std::string("a\0b", 3), kControl, R"("a\u0000b")"},
      {"a\nb", kControl, R"("a\nb")"},
      {"\t", kControl, R"("\t")"},
      {"\x1b[2J", kControl, R"("\u001b[2J")"},
      {"a\x1f", kControl, R"("a\u001f")"},
      {"a\x7f", kControl, R"("a\u007f")"},
      {"\u0080", kControl, R"("\u0080")"},
      {"a\u0085", kControl, R"("a\u0085")"},
      {"\u009f", kControl, R"("\u009f")"},
      {"\xff", kUtf8, R"("\ufffd")"},
      {"a\x80", kUtf8, R"("a\ufffd")"},
      {"a\xc2", kUtf8, R"("a\ufffd")"},
      {"\xc0\xaf", kUtf8, ""},
      {"\xe0\x80\xaf", kUtf8, ""},
      {"\xed\xa0\x80", kUtf8, ""},
      {"\xf4\x90\x80\x80", kUtf8, ""},
      {"\xf0\x9f\x98", kUtf8, ""},
  };
  for (const auto& [name, trouble, quoted] : kCases) {
    EXPECT_EQ(TroubleWithTensorName(name), trouble) << QuotedName(name);
    EXPECT_THAT(QuotedName(name), testing::HasSubstr(quoted));
  }
}

TEST(TensorNameTest, EveryByteAlone) {
  for (int code = 0; code < 256; ++code) {
    const std::string name(1, static_cast<char>(code));
    const bool fits = code >= 0x20 && code < 0x7f;
    EXPECT_EQ(TroubleWithTensorName(name).empty(), fits) << code;
  }
}

TEST(TensorNameTest, TheLimitIsOfBytes) {
  std::string name;
  for (int i = 0; i < 500; ++i) name += "\u00e9";
  EXPECT_EQ(TroubleWithTensorName(name), "");
  EXPECT_EQ(TroubleWithTensorName(name + "a"), "it is longer than 1000 bytes");
}

RC_GTEST_PROP(TensorNameProperty, QuotedNamesAreFitForATerminal, ()) {
  const auto name = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const std::string quoted = QuotedName(name);
  RC_ASSERT(quoted.size() >= 2u && quoted.front() == '"' && quoted.back() == '"');
  RC_ASSERT(std::ranges::none_of(
      quoted, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
}

}  // namespace
}  // namespace strata
