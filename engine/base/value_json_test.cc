#include "engine/base/value_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Value Map(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

std::string ErrorOfText(const std::string& text) {
  return ConfigErrorOf([&] { Value::FromJson(text); });
}

/// A random value of at most `depth` levels, without functions, since JSON does not read back as
/// functions.
Value Arbitrary(int depth) {
  const int kind = *rc::gen::inRange(0, depth > 0 ? 7 : 5);
  switch (kind) {
    case 0:
      return {};
    case 1:
      return *rc::gen::arbitrary<bool>();
    case 2:
      return *rc::gen::arbitrary<int64_t>();
    case 3:
      return *rc::gen::arbitrary<double>();
    case 4:
      return *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
    case 5: {
      Value::List list(*rc::gen::inRange<size_t>(0, 5));
      for (Value& element : list) element = Arbitrary(depth - 1);
      return list;
    }
    default: {
      Value map = Map({});
      const int entries = *rc::gen::inRange(0, 5);
      for (int i = 0; i < entries; ++i) {
        map.Set(*rc::gen::container<std::string>(rc::gen::inRange('a', 'd')), Arbitrary(depth - 1));
      }
      return map;
    }
  }
}

// ---- Writing

TEST(ToJson, OnOneLine) {
  const Value value = Map({{"a", Value::List{1, 2.5, true, Value()}}, {"b", Map({{"c", "d"}})}});
  EXPECT_EQ(value.ToJson(), R"({"a":[1,2.5,true,null],"b":{"c":"d"}})");
  EXPECT_EQ(Map({}).ToJson(), "{}");
  EXPECT_EQ(Value(Value::List{}).ToJson(), "[]");
}

TEST(ToJson, Indented) {
  const Value value = Map({{"a", Value::List{1, 2}}, {"b", Map({})}, {"c", Value::List{}}});
  EXPECT_EQ(value.ToJson(2),
            "{\n"
            "  \"a\": [\n"
            "    1,\n"
            "    2\n"
            "  ],\n"
            "  \"b\": {},\n"
            "  \"c\": []\n"
            "}");
}

TEST(ToJson, KeepsDoublesDoubles) {
  EXPECT_EQ(Value(3.0).ToJson(), "3.0");
  EXPECT_EQ(Value(-0.0).ToJson(), "-0.0");
  EXPECT_EQ(Value(0.1).ToJson(), "0.1");
  EXPECT_EQ(Value(1e300).ToJson(), "1e+300");
  EXPECT_EQ(Value(3).ToJson(), "3");
}

TEST(ToJson, NumbersThatJsonLacksAreStrings) {
  EXPECT_EQ(Value(std::nan("")).ToJson(), "\"NaN\"");
  EXPECT_EQ(Value(std::numeric_limits<double>::infinity()).ToJson(), "\"Infinity\"");
  EXPECT_EQ(Value(-std::numeric_limits<double>::infinity()).ToJson(), "\"-Infinity\"");
}

TEST(ToJson, EscapesStrings) {
  EXPECT_EQ(Value("a\"b\\c\n\x01").ToJson(), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(Value("\xC3\xA4").ToJson(), "\"\xC3\xA4\"");
  EXPECT_EQ(Value("\xFF").ToJson(), "\"\xEF\xBF\xBD\"") << "not UTF-8: U+FFFD";
  EXPECT_EQ(Map({{"a\nb", 1}}).ToJson(), R"({"a\nb":1})");
}

TEST(ToJson, FunctionsByPlaceAndDigest) {
  EXPECT_EQ(Value(FunctionRef{.id = 1, .where = "a.lua:3", .digest = "ff"}).ToJson(),
            R"({"function":"a.lua:3","digest":"ff"})");
}

// ---- Reading

TEST(FromJson, AllKinds) {
  EXPECT_EQ(Value::FromJson(" { \"a\" : [ 1 , 2.5 , true, false, null ] , \"b\" : { } } "),
            Map({{"a", Value::List{1, 2.5, true, false, Value()}}, {"b", Map({})}}));
  EXPECT_EQ(Value::FromJson("\"a\\u00e4\\n\""), Value("a\xC3\xA4\n"));
  EXPECT_EQ(Value::FromJson("null"), Value());
}

TEST(FromJson, EscapesOfStrings) {
  EXPECT_EQ(Value::FromJson(R"("\"\\\/\b\f\n\r\t")"), Value("\"\\/\b\f\n\r\t"));
  EXPECT_EQ(Value::FromJson(R"("\u0041\u20ac")"), Value("A\xE2\x82\xAC"));
  EXPECT_EQ(Value::FromJson(R"("\ud83d\ude00")"), Value("\xF0\x9F\x98\x80"));
  EXPECT_EQ(Value::FromJson(R"("\u0000")"), Value(std::string(1, '\0')));
  EXPECT_THAT(ErrorOfText(R"("\ud83d")"), HasSubstr("surrogate"));
  EXPECT_THAT(ErrorOfText(R"("\u00g0")"), StartsWith("not valid JSON"));
}

TEST(FromJson, SkipsAByteOrderMark) {
  EXPECT_EQ(Value::FromJson("\xEF\xBB\xBF[1]"), Value(Value::List{1}));
}

TEST(FromJson, EmptyKeysAndListsInLists) {
  EXPECT_EQ(Value::FromJson(R"({"":[[],[[]],{}]})").ToLua(), "{[\"\"]={{}, {{}}, {}}}");
}

TEST(FromJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(Value::FromJson(R"({"b":1,"a":2,"c":3})").ToLua(), "{b=1, a=2, c=3}");
}

TEST(FromJson, NoKeyComesTwice) {
  const struct {
    const char* text;
    const char* trouble;
  } kCases[] = {
      {R"({"a":1,"a":1})", "line 1, column 10: the key \"a\" comes twice"},
      {R"({"a":1,"b":2,"a":3})", "line 1, column 16: the key \"a\" comes twice"},
      {R"({"a":1,"\u0061":2})", "line 1, column 15: the key \"a\" comes twice"},
      {R"({"":1,"":2})", "line 1, column 8: the key \"\" comes twice"},
      {"[{\"a\":1},\n {\"b\":1,\n  \"b\":2}]", "line 3, column 5: the key \"b\" comes twice"},
      {R"({"a":{"b":1,"c":[],"b":2}})", "line 1, column 22: the key \"b\" comes twice"},
      {R"({"a":{"b":1},"a":{"c":1}})", "line 1, column 16: the key \"a\" comes twice"},
      {R"({"a":[{"c":1}],"b":{},"b":1})", "line 1, column 25: the key \"b\" comes twice"},
      {R"({"x\n":1,"x\n":2})", R"(line 1, column 14: the key "x\n" comes twice)"},
  };
  for (const auto& [text, trouble] : kCases) {
    EXPECT_EQ(ErrorOfText(text), Str("not valid JSON: ", trouble)) << text;
  }
  EXPECT_EQ(Value::FromJson(R"([{"a":{"a":1},"A":2,"a ":3},{"a":2}])").as_list().size(), 2u);
}

TEST(FromJson, IntegersAndDoubles) {
  EXPECT_EQ(Value::FromJson("3"), Value(3));
  EXPECT_EQ(Value::FromJson("3.0"), Value(3.0));
  EXPECT_EQ(Value::FromJson("3e2"), Value(300.0));
  EXPECT_EQ(Value::FromJson("9223372036854775807"), Value(INT64_MAX));
  EXPECT_EQ(Value::FromJson("-9223372036854775808"), Value(INT64_MIN));
}

TEST(FromJson, IntegersBeyondInt64AreDoubles) {
  EXPECT_EQ(Value::FromJson("9223372036854775808"), Value(0x1p63));
  EXPECT_EQ(Value::FromJson("18446744073709551615"), Value(0x1p64));
  EXPECT_EQ(Value::FromJson("123456789012345678901234567890"),
            Value(123456789012345678901234567890.0));
  EXPECT_EQ(Value::FromJson("-9223372036854775809"), Value(-0x1p63));
}

TEST(FromJson, BrokenTextsAreNamedWithTheirPlace) {
  EXPECT_THAT(ErrorOfText("{\"a\": 1,\n \"b\": x}"),
              AllOf(StartsWith("not valid JSON: parse error at line 2, column 7"),
                    Not(HasSubstr("json.exception"))));
  for (const char* text :
       {"",    " ",   "{",     "[1,]",       "{\"a\":}", "{\"a\":1,}", "{a:1}", "[1 2]",
        "tru", "1 2", "\"abc", "\"\xFF\"",   "\"\n\"",   "01",         "+1",    "1.",
        "NaN", "'a'", "[1]]",  "{\"a\":1}}", "\"\\x\"",  "{1:2}"}) {
    EXPECT_THAT(ErrorOfText(text), StartsWith("not valid JSON: ")) << text;
  }
  EXPECT_THAT(ErrorOfText("1e999"), HasSubstr("1e999"));
}

TEST(FromJson, DeepTextsAreRefusedNotCrashing) {
  const auto nested = [](int levels) {
    return std::string(static_cast<size_t>(levels), '[') +
           std::string(static_cast<size_t>(levels), ']');
  };
  EXPECT_EQ(Value::FromJson(nested(1000)).ToJson(), nested(1000));
  EXPECT_THAT(ErrorOfText(nested(1001)), HasSubstr("1000 levels"));
  EXPECT_THAT(ErrorOfText(nested(1'000'000)), HasSubstr("1000 levels"));
  EXPECT_THAT(ErrorOfText(std::string(1'000'000, '[')), HasSubstr("1000 levels"));
}

TEST(FromJson, AZeroByteEndsNoText) {
  for (const std::string& text : {std::string("{}\0", 3), std::string("{}\0{}", 5),
                                  std::string("\0{}", 3), std::string("[1,\0 2]", 7)}) {
    EXPECT_THAT(ErrorOfText(text), HasSubstr("a zero byte")) << text;
  }
  EXPECT_EQ(ErrorOfText(std::string("[1,\n\0]", 6)),
            "not valid JSON: line 2, column 1: a zero byte");
}

TEST(ParseJson, IntegersBeyondDoublesAreRefusedWhereAsked) {
  const JsonRules rules = {.exact_in_doubles = true};
  for (const char* text : {"9007199254740992", "-9007199254740992", "9007199254740993.0", "1e300",
                           "-9e15", "0", "[1, -1]"}) {
    EXPECT_EQ(ParseJson(text, rules), ParseJson(text)) << text;
  }
  for (const char* text :
       {"9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808",
        "18446744073709551615", "18446744073709551616", "-9223372036854775809"}) {
    EXPECT_THAT(ConfigErrorOf([&] { ParseJson(text, rules); }),
                HasSubstr(Str("the integer ", text, " is beyond 2^53")));
    EXPECT_EQ(ErrorOfText(text), "no error") << text;
  }
}

TEST(Utf8Trouble, NamesTheFirstWrongByte) {
  EXPECT_EQ(Utf8Trouble("a\0é日😀"), "");
  EXPECT_EQ(Utf8Trouble("ab\xff"), "invalid UTF-8 byte at index 2: 0xFF");
  EXPECT_EQ(Utf8Trouble("\xc3"), "incomplete UTF-8 string; last byte: 0xC3");
}

TEST(FromJson, AVocabularyIsReadInLinearTime) {
  // 200,000 keys. A linear search through the keys for each new key would take minutes.
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += Str(i > 0 ? "," : "", "\"token", i, "\":", i);
  const Value vocabulary = Value::FromJson(text + "}");
  ASSERT_EQ(vocabulary.as_map().size(), 200'000u);
  EXPECT_EQ(vocabulary.as_map()[199'999].second.as_int(), 199'999);
  EXPECT_EQ(vocabulary.ToJson(), text + "}");
}

// ---- Laws

RC_GTEST_PROP(JsonLaws, WhatIsWrittenReadsBackEqual, ()) {
  const Value value = Arbitrary(4);
  RC_ASSERT(Value::FromJson(value.ToJson()) == value);
  RC_ASSERT(Value::FromJson(value.ToJson(2)) == value);
}

RC_GTEST_PROP(JsonLaws, IndentingAddsWhiteSpaceOnly, ()) {
  const Value value = Arbitrary(4);
  std::string indented = value.ToJson(2), one_line = value.ToJson();
  for (std::string* text : {&indented, &one_line}) {
    std::erase(*text, ' ');
    std::erase(*text, '\n');  // this removes no content, since newlines in strings are escaped
  }
  RC_ASSERT(indented == one_line);
}

RC_GTEST_PROP(JsonLaws, NumbersKeepTheirKind, (int64_t whole, double real)) {
  RC_ASSERT(Value::FromJson(Value(whole).ToJson()).kind() == Value::Kind::kInt);
  RC_ASSERT(Value::FromJson(Value(real).ToJson()).kind() == Value::Kind::kDouble);
  RC_ASSERT(Value::FromJson(Value(std::floor(real)).ToJson()).kind() == Value::Kind::kDouble);
}

RC_GTEST_PROP(JsonLaws, EveryBeginningIsRefused, ()) {
  const std::string text = Value(Value::List{Arbitrary(3)}).ToJson();
  const auto size = *rc::gen::inRange<size_t>(0, text.size());
  RC_ASSERT(ErrorOfText(text.substr(0, size)).starts_with("not valid JSON"));
}

RC_GTEST_PROP(JsonLaws, AnyBytesInAStringGiveValidJson, (const std::string& bytes)) {
  const Value back = Value::FromJson(Value(bytes).ToJson());
  RC_ASSERT(back.is_string());
  RC_ASSERT(Value::FromJson(back.ToJson()) == back);
}

RC_GTEST_PROP(JsonLaws, OneLineIsOneLine, ()) {
  RC_ASSERT(Arbitrary(4).ToJson().find('\n') == std::string::npos);
}

RC_GTEST_PROP(JsonLaws, AnyTextIsReadOrRefused, ()) {
  std::string text = Arbitrary(4).ToJson();
  const auto at = *rc::gen::inRange<size_t>(0, text.size());
  text[at] = *rc::gen::arbitrary<char>();
  const std::string error = ErrorOfText(text);
  RC_ASSERT((error == "no error" || error.starts_with("not valid JSON")));
}

}  // namespace
}  // namespace strata
