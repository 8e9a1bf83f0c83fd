#include "engine/checkpoint/files/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string TroubleWith(std::string_view text, size_t max_depth = 4) {
  return ErrorOf([&] { ParseStrictJson(text, max_depth, "the file"); });
}

TEST(StrictJsonTest, Right) {
  const struct {
    std::string text;
    Value value;
  } kCases[] = {
      {"null", {}},
      {"true", true},
      {"false", false},
      {" \t\r\n1 \t\r\n", 1},
      // numbers
      {"0", 0},
      {"-0", 0},
      {"-1", -1},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
      {"9223372036854775808", 9223372036854775808.0},
      {"18446744073709551615", 18446744073709551615.0},
      {"18446744073709551616", 18446744073709551616.0},
      {"-9223372036854775809", -9223372036854775808.0},
      {"1.0", 1.0},
      {"-0.5", -0.5},
      {"1e2", 100.0},
      {"1E+2", 100.0},
      {"25e-2", 0.25},
      {"1.7976931348623157e308", 1.7976931348623157e308},
      {"1e-400", 0.0},
      // texts
      {"\"\"", ""},
      {"\"a b\"", "a b"},
      {R"("\"\\\/\b\f\n\r\t")", "\"\\/\b\f\n\r\t"},
      {R"("\u0041\u00e9\u20AC")", "A\u00e9\u20ac"},
      {R"("\ud83d\ude00")", "\U0001F600"},
      {R"("\u0000")", std::string(1, '\0')},
      {"\"\u00e9\u20ac\U0001F600\"", "\u00e9\u20ac\U0001F600"},
      {"\"\x7f\"", "\x7f"},
      // lists and objects
      {"[]", Value::List{}},
      {"[ 1 , [ ] ]", Value::List{1, Value::List{}}},
      {"{}", Value::MakeMap()},
      {R"({"":1})", Value::MakeMap({{"", 1}})},
      {R"({ "a" : 1 , "b" : null })", Value::MakeMap({{"a", 1}, {"b", {}}})},
      {R"({"a":{"a":{"a":1}}})",
       Value::MakeMap({{"a", Value::MakeMap({{"a", Value::MakeMap({{"a", 1}})}})}})},
      {R"([{"a":1},{"a":2}])", Value::List{Value::MakeMap({{"a", 1}}), Value::MakeMap({{"a", 2}})}},
      {R"({"a":1,"A":2,"a ":3})", Value::MakeMap({{"a", 1}, {"A", 2}, {"a ", 3}})},
  };
  for (const auto& [text, value] : kCases) {
    ASSERT_EQ(TroubleWith(text), "no error") << text;
    EXPECT_EQ(ParseStrictJson(text, 4, "the file"), value) << text;
  }
}

TEST(StrictJsonTest, Wrong) {
  const std::string kTexts[] = {
      "", " ", "\n", "nul", "nulll", "True", "FALSE", "undefined", "a",
      // numbers
      "-", "+1", "01", "-01", "00", ".5", "1.", "-.5", "1e", "1e+", "1.e5", "0x10", "1_000", "1,0",
      "--1", "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1f", "٣",
      // texts
      "\"", "\"a", "'a'", "\"a\nb\"", "\"a\tb\"", std::string("\"\0\"", 3), "\"\x1f\"", R"("\x41")",
      R"("\a")", R"("\u12")", R"("\u12g4")", R"("\U00000041")", R"("\)", R"("\ud83d")",
      R"("\ude00")", R"("\ud83d\u0041")", R"("\ud83dx")", R"("\ude00\ud83d")",
      // not UTF-8: a lone continuation byte, a cut-off sequence, an overlong sequence, a surrogate,
      // a code point above U+10FFFF
      "\"\x80\"", "\"\xff\"", "\"\xc3\"", "\"\xe2\x82\"", "\"\xf0\x9f\x98\"", "\"\xc0\xaf\"",
      "\"\xe0\x80\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "{\"\xff\":1}",
      // lists and objects
      "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1,,2]", "[1}", "{", "}", "{\"a\"",
      "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{,}", "{\"a\"}", "{\"a\" 1}", "{a:1}",
      "{1:1}", "{null:1}", "{\"a\":1 \"b\":2}", "{\"a\":1]", "{\"a\"::1}",
      // text after the value
      "1 2", "{}{}", "{},", "[]]", "{}x", "null null", std::string("{}\0", 3),
      std::string("{}\0{}", 5), std::string("\0{}", 3), std::string("[1,\0 2]", 7),
      // what other dialects allow
      "// a\n1", "/* a */ 1", "[1] // a", "# a\n1"};
  for (const std::string& text : kTexts) {
    EXPECT_THAT(TroubleWith(text), StartsWith("the file: not valid JSON: ")) << text;
  }
}

TEST(StrictJsonTest, SaysWhere) {
  EXPECT_THAT(TroubleWith("[1,\n]"), StartsWith("the file: not valid JSON: parse error at line 2"));
  EXPECT_EQ(TroubleWith(std::string("{}\0{}", 5)),
            "the file: not valid JSON: line 1, column 3: a zero byte");
}

TEST(StrictJsonTest, NoKeyComesTwice) {
  EXPECT_EQ(TroubleWith("{\"a\":1,\n\"a\":1}"),
            "the file: not valid JSON: line 2, column 3: the key \"a\" comes twice");
}

std::string Nested(size_t levels, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < levels; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(StrictJsonTest, HasALimitOfLevels) {
  for (const size_t limit : {1, 2, 4, 200}) {
    const std::string trouble = Str("nested more than ", limit, " levels deep");
    for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
      EXPECT_EQ(TroubleWith(Nested(limit, open, close), limit), "no error");
      EXPECT_THAT(TroubleWith(Nested(limit + 1, open, close), limit), HasSubstr(trouble));
    }
  }
  EXPECT_EQ(TroubleWith("1", 0), "no error");
  EXPECT_THAT(TroubleWith("[]", 0), HasSubstr("nested more than 0 levels deep"));
  // Levels that are closed do not count, and the reader stops at the first level that is too deep.
  EXPECT_EQ(TroubleWith("[[],[],[],[],{},{}]", 2), "no error");
  EXPECT_THAT(TroubleWith(std::string(10'000'000, '['), 4),
              HasSubstr("column 5: nested more than 4 levels deep"));
}

RC_GTEST_PROP(StrictJsonProperty, AnyBytesAreReadOrRefused, (const std::string& text)) {
  const std::string trouble = TroubleWith(text);
  RC_ASSERT(trouble == "no error" || trouble.starts_with("the file: "));
}

class JsonObjectTest : public testing::Test {
 protected:
  const Value value_ = Value::FromJson(
      R"({"text":"a","int":3,"negative":-3,"whole":3.0,"sizes":[0,4],"list":[1,"a"],)"
      R"("object":{"x":1},"nothing":null,"empty":[],"wrong":[1,-1],"halves":[0.5]})");
  const JsonObject object_{value_, "the file"};
};

TEST_F(JsonObjectTest, GivesWhatIsThere) {
  EXPECT_EQ(object_.Text("text"), "a");
  EXPECT_EQ(object_.Int("int", 3), 3);
  EXPECT_EQ(object_.Int("negative", -3), -3);
  EXPECT_EQ(object_.Sizes("sizes"), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(object_.Sizes("empty"), std::vector<int64_t>{});
  EXPECT_EQ(object_.List("list").size(), 2u);
  EXPECT_EQ(object_.Object("object"), Value::MakeMap({{"x", 1}}));
  EXPECT_TRUE(object_.Has("nothing"));
  EXPECT_FALSE(object_.Has("none"));
  EXPECT_EQ(object_.entries().size(), 11u);
}

TEST_F(JsonObjectTest, RefusesTheRest) {
  const struct {
    void (*read)(const JsonObject&);
    const char* trouble;
  } kCases[] = {
      {[](const JsonObject& o) { o.Text("int"); }, "int: expected a text, got the number 3"},
      {[](const JsonObject& o) { o.Text("none"); }, "none: expected a text, got nothing"},
      {[](const JsonObject& o) { o.Text("list"); }, "list: expected a text, got the list"},
      {[](const JsonObject& o) { o.Int("int", 4); }, "int: expected an integer of at least 4"},
      {[](const JsonObject& o) { o.Int("negative", 0); }, "at least 0, got the number -3"},
      {[](const JsonObject& o) { o.Int("whole", 0); }, "whole: expected an integer of at least 0"},
      {[](const JsonObject& o) { o.Int("text", 0); }, "at least 0, got the string \"a\""},
      {[](const JsonObject& o) { o.Int("nothing", 0); }, "at least 0, got nothing"},
      {[](const JsonObject& o) { o.Sizes("wrong"); }, "wrong: expected a list of integers"},
      {[](const JsonObject& o) { o.Sizes("halves"); }, "halves: expected a list of integers"},
      {[](const JsonObject& o) { o.Sizes("list"); }, "list: expected a list of integers"},
      {[](const JsonObject& o) { o.Sizes("int"); }, "int: expected a list, got the number 3"},
      {[](const JsonObject& o) { o.List("object"); }, "expected a list, got a table with names"},
      {[](const JsonObject& o) { o.List("none"); }, "none: expected a list, got nothing"},
      {[](const JsonObject& o) { o.Object("list"); }, "list: expected a JSON object, got the list"},
      {[](const JsonObject& o) { o.Object("none"); }, "none: expected a JSON object, got nothing"},
  };
  for (const auto& [read, trouble] : kCases) {
    EXPECT_THAT(ErrorOf([&] { read(object_); }),
                AllOf(StartsWith("the file: "), HasSubstr(trouble)));
  }
}

TEST_F(JsonObjectTest, IsOfAnObject) {
  for (const char* text : {"null", "1", "\"a\"", "[]", "[{}]", "true"}) {
    const Value value = Value::FromJson(text);
    EXPECT_THAT(ErrorOf([&] { JsonObject(value, "the file"); }),
                StartsWith("the file: expected a JSON object, got "))
        << text;
  }
}

}  // namespace
}  // namespace strata
