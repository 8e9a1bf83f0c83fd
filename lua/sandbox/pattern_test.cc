#include "lua/sandbox/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "engine/base/error.h"

namespace strata::lua {
namespace {

/// "begin-end:capture,capture" of the first match, "none" without one.
std::string Find(std::string_view subject, std::string_view text, size_t start = 0) {
  Pattern pattern(subject, text, [] {});
  const auto match = pattern.Find(start);
  if (!match) return "none";
  std::string result = std::to_string(match->begin) + "-" + std::to_string(match->end);
  for (const Capture& capture : match->captures) {
    result +=
        ":" + (capture.is_position ? "@" + std::to_string(capture.begin)
                                   : std::string(subject.substr(capture.begin, capture.length)));
  }
  return result;
}

TEST(Pattern, PlainLetters) {
  EXPECT_EQ(Find("hello", "l"), "2-3");
  EXPECT_EQ(Find("hello", "lo"), "3-5");
  EXPECT_EQ(Find("hello", ""), "0-0");
  EXPECT_EQ(Find("hello", "x"), "none");
  EXPECT_EQ(Find("", "x"), "none");
  EXPECT_EQ(Find("hello", "l", 3), "3-4");
}

TEST(Pattern, Anchors) {
  EXPECT_EQ(Find("hello", "^he"), "0-2");
  EXPECT_EQ(Find("hello", "^l"), "none");
  EXPECT_EQ(Find("hello", "^l", 2), "2-3");
  EXPECT_EQ(Find("hello", "lo$"), "3-5");
  EXPECT_EQ(Find("hello", "l$"), "none");
  EXPECT_EQ(Find("a$b", "$b"), "1-3") << "only at the end is $ an anchor";
}

TEST(Pattern, Classes) {
  EXPECT_EQ(Find("ab1_ C", "%d"), "2-3");
  EXPECT_EQ(Find("ab1_ C", "%u"), "5-6");
  EXPECT_EQ(Find("ab1_ C", "%s"), "4-5");
  EXPECT_EQ(Find("ab1_ C", "%p"), "3-4");
  EXPECT_EQ(Find("ab1_ C", "%A"), "2-3");
  EXPECT_EQ(Find("ab1", "%W"), "none");
  EXPECT_EQ(Find("0x1f", "%x+", 2), "2-4");
  EXPECT_EQ(Find("a.b", "%."), "1-2");
  EXPECT_EQ(Find(std::string_view("a\0b", 3), "%z"), "1-2");
}

TEST(Pattern, Sets) {
  EXPECT_EQ(Find("hello", "[xyl]"), "2-3");
  EXPECT_EQ(Find("hello", "[^e-l]"), "4-5");
  EXPECT_EQ(Find("a]b", "[]]"), "1-2");
  EXPECT_EQ(Find("a-b", "[b-]"), "1-2");
  EXPECT_EQ(Find("x9", "[%d]"), "1-2");
  EXPECT_EQ(Find("x%", "[%%]"), "1-2");
}

TEST(Pattern, Repetitions) {
  EXPECT_EQ(Find("aaab", "a*"), "0-3");
  EXPECT_EQ(Find("baaa", "a*"), "0-0");
  EXPECT_EQ(Find("baaa", "a+"), "1-4");
  EXPECT_EQ(Find("aaab", "a-b"), "0-4");
  EXPECT_EQ(Find("aaab", "a-"), "0-0");
  EXPECT_EQ(Find("color colour", "colou?r", 1), "6-12");
  EXPECT_EQ(Find("aaa", "a*a"), "0-3") << "gives back what it took too much";
}

TEST(Pattern, Captures) {
  EXPECT_EQ(Find("key = value", "(%w+)%s*=%s*(%w+)"), "0-11:key:value");
  EXPECT_EQ(Find("hello", "()ll()"), "2-4:@2:@4");
  EXPECT_EQ(Find("abab", "(a(b))%1"), "0-4:ab:b");
  EXPECT_EQ(Find("say \"hi\"", "([\"'])(.-)%1"), "4-8:\":hi");
  EXPECT_EQ(Find("ab", "(b)?a"), "none");
}

TEST(Pattern, BalancedAndFrontier) {
  EXPECT_EQ(Find("f(a(b)c)d", "%b()"), "1-8");
  EXPECT_EQ(Find("f(a", "%b()"), "none");
  EXPECT_EQ(Find("THE (quick) fox", "%f[%a]%a+%f[%A]"), "0-3");
  EXPECT_EQ(Find("THE (quick) fox", "%f[%a]%a+", 3), "5-10");
}

TEST(Pattern, RefusesWhatIsMalformed) {
  for (const char* text :
       {"[a", "[]", "[^]", "%", "(a", "a)", "%1", "%b", "%bx", "%f", "%fa", "(()", "[%", "(a%1)"}) {
    EXPECT_THROW(Find("aaaa(", text), ConfigError) << text;
  }
  EXPECT_THROW(Find("a", std::string(500, '(')), ConfigError);
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "a?";
  EXPECT_THROW(Find(std::string(300, 'a'), deep), ConfigError);
}

TEST(Pattern, ABombCanBeStopped) {
  struct Stop {};
  std::string text;
  for (int i = 0; i < 12; ++i) text += ".-";
  text += "b";
  int polls = 0;
  const std::string subject(10000, 'a');
  Pattern pattern(subject, text, [&] {
    if (++polls == 3) throw Stop();
  });
  EXPECT_THROW(pattern.Find(0), Stop);
}

}  // namespace
}  // namespace strata::lua
