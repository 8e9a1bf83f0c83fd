#include "engine/base/fields/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Value Canonical(const Field& field, const Value& value) {
  return CanonicalizeField(field, value, {.subject = "Thing"});
}

std::string Refusal(const Field& field, const Value& value) {
  return ErrorOf([&] { Canonical(field, value); });
}

Value List(Value::List values) { return values; }

// ---- kinds ----

struct KindCase {
  Field field;
  std::vector<std::pair<Value, Value>> taken;  // pairs: as written, canonical
  std::vector<Value> refused;
  std::string expected;
};

class Kinds : public testing::TestWithParam<KindCase> {};

TEST_P(Kinds, TakesWhatFits) {
  for (const auto& [written, canonical] : GetParam().taken) {
    const Value result = Canonical(GetParam().field, written);
    EXPECT_EQ(result, canonical) << written.ToLua();
    EXPECT_EQ(Canonical(GetParam().field, result), canonical) << "not idempotent";
  }
}

TEST_P(Kinds, RefusesTheRest) {
  for (const Value& value : GetParam().refused) {
    EXPECT_THAT(Refusal(GetParam().field, value),
                HasSubstr("Thing: x expects " + GetParam().expected + "; got " + value.Describe()))
        << value.ToLua();
  }
}

TEST_P(Kinds, SayWhatTheyExpect) { EXPECT_EQ(GetParam().field.Expected(), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(
    Fields, Kinds,
    testing::Values(
        KindCase{Field::Bool("x", ""),
                 {{true, true}, {false, false}},
                 {0, 1, "true", 0.5, Ints({1}), Value::MakeMap(), Function("a:1")},
                 "true or false"},
        KindCase{Field::Int("x", ""),
                 {{3, 3}, {-3, -3}, {3.0, 3}, {0, 0}},
                 {3.5, "3", true, Ints({3}), kNan, kInfinity, 1e300, Value::MakeMap()},
                 "an integer"},
        KindCase{Field::Int("x", "").AtLeast(1).AtMost(9),
                 {{1, 1}, {9, 9}},
                 {0, -1, 10, 1 << 30},
                 "an integer, at least 1, at most 9"},
        KindCase{Field::Int("x", "").AtLeast(1).Or({"epoch"}),
                 {{1, 1}, {"epoch", "epoch"}},
                 {0, "epochs", Ints({1}), Value::MakeMap()},
                 "an integer, at least 1, or \"epoch\""},
        KindCase{Field::Number("x", ""),
                 {{3, 3.0}, {0.5, 0.5}, {-1e30, -1e30}},
                 {"0.5", true, kNan, kInfinity, -kInfinity, Ints({1})},
                 "a number"},
        KindCase{Field::Number("x", "").AtLeast(0).Below(1),
                 {{0, 0.0}, {0.999, 0.999}},
                 {1, -0.001, 2},
                 "a number, at least 0, below 1"},
        KindCase{Field::Number("x", "").Above(0).AtMost(1),
                 {{1, 1.0}, {1e-300, 1e-300}},
                 {0, 1.001},
                 "a number, above 0, at most 1"},
        KindCase{Field::String("x", ""),
                 {{"", ""}, {"abc", "abc"}, {"none", "none"}},
                 {3, true, Ints({1}), Value::MakeMap()},
                 "a string"},
        KindCase{Field::Choice("x", {"zeros", "reflect"}, ""),
                 {{"zeros", "zeros"}, {"reflect", "reflect"}},
                 {"", "ZEROS", 0, true, Ints({}), Value::MakeMap()},
                 "one of \"zeros\", \"reflect\""},
        KindCase{Field::Choice("x", {"zeros"}, ""), {{"zeros", "zeros"}}, {"ones"}, "\"zeros\""},
        KindCase{Field::Size("x", 2, "").AtLeast(0),
                 {{3, Ints({3, 3})}, {Ints({1, 2}), Ints({1, 2})}, {0, Ints({0, 0})}},
                 {-1, Ints({1}), Ints({1, 2, 3}), Ints({1, -1}), Ints({}), 1.5, "3", List({1, "2"}),
                  List({1, 1.5}), List({1, Value()}), Value::MakeMap()},
                 "an integer or a list of 2 integers, at least 0"},
        KindCase{Field::Size("x", 1, "").Or({"same"}),
                 {{3, Ints({3})}, {Ints({3}), Ints({3})}, {"same", "same"}},
                 {"valid", Ints({1, 2}), true},
                 "an integer or a list of 1 integer, or \"same\""},
        KindCase{Field::Shape("x", "").AtLeast(1),
                 {{5, Ints({5})}, {Ints({5, 6}), Ints({5, 6})}, {Ints({}), Ints({})}},
                 {0, Ints({1, 0}), "5", List({"5"}), 1.5, true},
                 "an integer or a list of integers, at least 1"},
        KindCase{Field::Numbers("x", 2, ""),
                 {{List({0.9, 1}), List({0.9, 1.0})}},
                 {0.9, List({0.9}), List({0.9, 0.9, 0.9}), List({0.9, "a"}), "0.9"},
                 "a list of 2 numbers"},
        KindCase{Field::Numbers("x", 0, "").AtLeast(0),
                 {{List({1}), List({1.0})},
                  {List({1, 2.5, 3}), List({1.0, 2.5, 3.0})},
                  {1, List({1.0})}},
                 {List({}), List({-1}), List({true}), -1, "1"},
                 "a number or a list of numbers, at least 0"},
        KindCase{Field::DType("x", ""),
                 {{"float32", "float32"}, {"double", "float64"}, {"long", "int64"}},
                 {3, true, Ints({1})},
                 "a dtype such as \"float32\""},
        KindCase{Field::Function("x", ""),
                 {{Function("a:1"), Function("a:1")}},
                 {"print", 3, Ints({})},
                 "a function"},
        KindCase{Field::Any("x", ""),
                 {{3, 3}, {"a", "a"}, {Ints({1}), Ints({1})}, {Function("a:1"), Function("a:1")}},
                 {},
                 "a value"},
        KindCase{Field::Table("x", {}, ""), {{Ints({1}), Ints({1})}}, {}, "a table"}));

TEST(Fields, DTypesAreRefusedWithTheNearest) {
  EXPECT_EQ(Refusal(Field::DType("x", ""), "float23"),
            "Thing: x: there is no dtype \"float23\"; did you mean \"float32\"?");
}

TEST(Fields, ChoicesAreRefusedWithTheNearest) {
  const Field field = Field::Choice("mode", {"zeros", "reflect"}, "");
  EXPECT_EQ(Refusal(field, "reflct"),
            "Thing: mode expects one of \"zeros\", \"reflect\"; got the string \"reflct\"; did you "
            "mean \"reflect\"?");
}

TEST(Fields, NoneIsAValueWhereItIsAllowed) {
  for (const Field& field :
       {Field::Int("x", "").Optional(), Field::String("x", "").Optional(),
        Field::Number("x", "").OrNone().Default(0.1), Field::Choice("x", {"a"}, "").Optional()}) {
    EXPECT_EQ(Canonical(field, "none"), Value());
    EXPECT_EQ(Canonical(field, Value()), Value());
    EXPECT_THAT(field.Expected(), HasSubstr(", or none"));
  }
  EXPECT_NE(Refusal(Field::Int("x", ""), "none"), "");
}

TEST(Fields, ElementsMayBeNone) {
  Field field = Field::Size("x", 2, "").AtLeast(1);
  field.ElementsOrNone();
  EXPECT_EQ(Canonical(field, List({Value(), 7})), List({Value(), 7}));
  EXPECT_EQ(Canonical(field, List({3, "none"})), List({3, Value()}));
  EXPECT_NE(Refusal(field, List({0, 7})), "");
}

TEST(Fields, DefaultsAreCanonical) {
  EXPECT_EQ(Field::Size("x", 3, "").Default(2).fallback, Ints({2, 2, 2}));
  EXPECT_EQ(Field::Number("x", "").Default(2).fallback, Value(2.0));
  EXPECT_EQ(Field::DType("x", "").Default("float").fallback, Value("float32"));
  EXPECT_TRUE(Field::Int("x", "").Optional().fallback.is_null());
  EXPECT_TRUE(Field::Int("x", "").required);
  EXPECT_FALSE(Field::Int("x", "").Default(1).required);
  EXPECT_FALSE(Field::Int("x", "").Optional().required);
}

TEST(Fields, WhatComesLaterIsRefusedByName) {
  const Field zero = Field::Int("zero", "").Default(0).OnlyDefaultYet("ZeRO");
  EXPECT_EQ(Canonical(zero, 0), Value(0));
  EXPECT_EQ(Refusal(zero, 1),
            "Thing: zero = 1 is not built yet: ZeRO comes later; this build has 0");
}

TEST(Fields, RefusedOnesSayWhy) {
  EXPECT_EQ(Refusal(Field::Refused("device", "the job's device holds"), "cpu"),
            "Thing does not take device: the job's device holds");
}

// ---- calls ----

FieldTable Table() {
  return {Field::Int("in", "size of the input").AtLeast(1),
          Field::Int("out", "size of the output").AtLeast(1),
          Field::Bool("bias", "adds a vector").Default(true),
          Field::Refused("device", "the job has one"),
          Field::Number("momentum", "share of the new").OrNone().Default(0.1),
          Field::Bool("causal", "only the past").NamedOnly().Default(false)};
}

Call MakeCall(Value::List positional, Value::Map named = {}) {
  return {.subject = "Thing",
          .where = "net.lua:4",
          .positional = std::move(positional),
          .named = std::move(named)};
}

std::string CallError(Value::List positional, Value::Map named = {}) {
  return ErrorOf([&] { Canonicalize(Table(), MakeCall(std::move(positional), std::move(named))); });
}

std::vector<std::string> KeysOf(const Value& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map.as_map()) keys.push_back(key);
  return keys;
}

TEST(Canonicalize, GivesEveryFieldInTheTablesOrder) {
  const Value args = Canonicalize(Table(), MakeCall({3}, {{"causal", true}, {"out", 4}}));
  EXPECT_THAT(KeysOf(args), ElementsAre("in", "out", "bias", "momentum", "causal"));
  EXPECT_EQ(args["in"], Value(3));
  EXPECT_EQ(args["out"], Value(4));
  EXPECT_EQ(args["bias"], Value(true));
  EXPECT_EQ(args["momentum"], Value(0.1));
  EXPECT_EQ(args["causal"], Value(true));
}

TEST(Canonicalize, NilLeavesOutByPosition) {
  const Value args = Canonicalize(Table(), MakeCall({3, 4, Value(), Value(), 0.5}));
  EXPECT_EQ(args["bias"], Value(true));
  EXPECT_EQ(args["momentum"], Value(0.5));
  EXPECT_EQ(Canonicalize(Table(), MakeCall({3, 4, false, Value(), Value(), Value()}))["bias"],
            Value(false));
}

TEST(Canonicalize, NoneStaysNoneThoughTheDefaultIsAnother) {
  EXPECT_TRUE(
      Canonicalize(Table(), MakeCall({3, 4}, {{"momentum", "none"}}))["momentum"].is_null());
}

TEST(Canonicalize, GivenOnlyHasNoDefaults) {
  EXPECT_THAT(KeysOf(CanonicalizeGiven(Table(), MakeCall({}, {{"out", 4}}))), ElementsAre("out"));
  EXPECT_THAT(KeysOf(CanonicalizeGiven(Table(), MakeCall({}))), ElementsAre());
  EXPECT_THAT(KeysOf(CanonicalizeGiven(Table(), MakeCall({Value(), 4}))), ElementsAre("out"));
  const Value none = CanonicalizeGiven(Table(), MakeCall({}, {{"out", Value()}}));
  EXPECT_THAT(KeysOf(none), ElementsAre("out")) << "it takes the place of what is below";
  EXPECT_TRUE(none["out"].is_null());
}

TEST(Canonicalize, TreatsDashesAsUnderscores) {
  const FieldTable table = {Field::Int("micro_batches", "")};
  EXPECT_EQ(Canonicalize(table, MakeCall({}, {{"micro-batches", 4}}))["micro_batches"], Value(4));
}

TEST(Canonicalize, Errors) {
  EXPECT_EQ(CallError({3}),
            "net.lua:4: Thing needs out: size of the output (an integer, at least 1)");
  EXPECT_EQ(CallError({}), "net.lua:4: Thing needs in: size of the input (an integer, at least 1)");
  EXPECT_EQ(CallError({3, Value()}),
            "net.lua:4: Thing needs out: size of the output (an integer, at least 1)");
  EXPECT_EQ(CallError({3, 4, true, Value(), 0.5, true}),
            "net.lua:4: Thing takes at most 5 arguments by position (in, out, bias, device, "
            "momentum), got 6");
  EXPECT_EQ(CallError({3, 4}, {{"in", 5}}),
            "net.lua:4: Thing: in is given twice, by position and by name");
  EXPECT_EQ(CallError({3, 4}, {{"baas", false}}),
            "net.lua:4: Thing has no argument \"baas\"; did you mean \"bias\"?");
  EXPECT_EQ(CallError({3, 4}, {{"xyzzy", false}}),
            "net.lua:4: Thing has no argument \"xyzzy\"; it is one of in, out, bias, momentum, "
            "causal");
  EXPECT_EQ(CallError({3, 4, true, "cpu"}),
            "net.lua:4: Thing does not take device: the job has one");
  EXPECT_EQ(CallError({3, 4}, {{"device", "cpu"}}),
            "net.lua:4: Thing does not take device: the job has one");
  EXPECT_EQ(CallError({3, 0}),
            "net.lua:4: Thing: out expects an integer, at least 1; got the number 0");
  EXPECT_EQ(CallError({3, 4}, {{"bias", 1}}),
            "net.lua:4: Thing: bias expects true or false; got the number 1");
}

TEST(Canonicalize, AnEmptyTableSaysThatItTakesNothing) {
  const auto error = [](Value::List positional, Value::Map named) {
    return ErrorOf([&] { Canonicalize({}, MakeCall(positional, named)); });
  };
  EXPECT_EQ(error({}, {}), "");
  EXPECT_EQ(error({1}, {}), "net.lua:4: Thing takes at most 0 arguments by position, got 1");
  EXPECT_EQ(error({}, {{"dim", 1}}),
            "net.lua:4: Thing has no argument \"dim\"; it takes no arguments");
}

TEST(Canonicalize, UsesTheCallsNoun) {
  Call call = MakeCall({}, {{"stepz", 1}});
  call.noun = "key";
  const FieldTable table = {Field::Int("steps", "")};
  EXPECT_EQ(ErrorOf([&] { Canonicalize(table, call); }),
            "net.lua:4: Thing has no key \"stepz\"; did you mean \"steps\"?");
}

RC_GTEST_PROP(Canonicalize, PositionAndNameMeanTheSame, (bool bias)) {
  const int in = *rc::gen::inRange(1, 1000), out = *rc::gen::inRange(1, 1000);
  const Value all = Canonicalize(Table(), MakeCall({in, out, bias}));
  RC_ASSERT(all == Canonicalize(Table(), MakeCall({in, out}, {{"bias", bias}})));
  RC_ASSERT(all == Canonicalize(Table(), MakeCall({in}, {{"bias", bias}, {"out", out}})));
  RC_ASSERT(all == Canonicalize(Table(), MakeCall({}, {{"bias", bias}, {"out", out}, {"in", in}})));
}

RC_GTEST_PROP(Canonicalize, WhatItGivesIsWhatItTakes, (bool bias, bool causal)) {
  const int in = *rc::gen::inRange(1, 1000), out = *rc::gen::inRange(1, 1000);
  const Value once = Canonicalize(Table(), MakeCall({in, out, bias}, {{"causal", causal}}));
  RC_ASSERT(once == Canonicalize(Table(), MakeCall({}, once.as_map())));
}

// ---- values as calls ----

TEST(CallOf, ListsArePositionsMapsAreNames) {
  EXPECT_THAT(CallOf(Ints({3, 4})).positional, ElementsAre(Value(3), Value(4)));
  const Call named = CallOf(Value::MakeMap({{"a", 1}}));
  EXPECT_TRUE(named.positional.empty());
  EXPECT_EQ(named.named.size(), 1u);
  EXPECT_TRUE(CallOf(Value()).positional.empty());
  EXPECT_THAT(CallOf("sgd").positional, ElementsAre(Value("sgd")));
  EXPECT_THAT(CallOf(Function("a:1")).positional, ElementsAre(Value(Function("a:1"))));
}

TEST(CallOf, MixedTablesHaveNumbersAsKeys) {
  const Call call = CallOf(Value::MakeMap({{"1", "sgd"}, {"lr", 0.1}, {"3", 5}}));
  EXPECT_THAT(call.positional, ElementsAre(Value("sgd"), Value(), Value(5)));
  ASSERT_EQ(call.named.size(), 1u);
  EXPECT_EQ(call.named[0].first, "lr");
}

TEST(CallOf, StrangeNumbersAreNames) {
  for (const char* key : {"0", "01", "-1", "1.5", "99999999999", "1x", ""}) {
    EXPECT_EQ(CallOf(Value::MakeMap({{key, 1}})).named.size(), 1u) << key;
  }
}

// ---- texts ----

TEST(ParseText, ReadsByKind) {
  const Field boolean = Field::Bool("x", ""), integer = Field::Int("x", ""),
              number = Field::Number("x", ""), text = Field::String("x", ""),
              choice = Field::Choice("x", {"1"}, ""), size = Field::Size("x", 2, ""),
              shape = Field::Shape("x", ""), numbers = Field::Numbers("x", 0, ""),
              dtype = Field::DType("x", "");
  EXPECT_EQ(ParseText(&boolean, "true"), Value(true));
  EXPECT_EQ(ParseText(&boolean, "off"), Value(false));
  EXPECT_EQ(ParseText(&boolean, "maybe"), Value("maybe"));
  EXPECT_EQ(ParseText(&integer, "12"), Value(12));
  EXPECT_EQ(ParseText(&integer, "-12"), Value(-12));
  EXPECT_EQ(ParseText(&integer, "12x"), Value("12x"));
  EXPECT_EQ(ParseText(&number, "1e-3"), Value(1e-3));
  EXPECT_EQ(ParseText(&number, ".5"), Value(0.5));
  EXPECT_EQ(ParseText(&text, "12"), Value("12"));
  EXPECT_EQ(ParseText(&text, "a,b"), Value("a,b"));
  EXPECT_EQ(ParseText(&choice, "1"), Value("1"));
  EXPECT_EQ(ParseText(&dtype, "float"), Value("float"));
  EXPECT_EQ(ParseText(&size, "3"), Value(3));
  EXPECT_EQ(ParseText(&size, "3,4"), Ints({3, 4}));
  EXPECT_EQ(ParseText(&shape, "3, 64, 64"), Ints({3, 64, 64}));
  EXPECT_EQ(ParseText(&numbers, "0.5"), List({0.5}));
  EXPECT_EQ(ParseText(&numbers, "0.9,0.999"), List({0.9, 0.999}));
}

TEST(ParseText, GuessesWhereTheKindIsOpen) {
  EXPECT_EQ(ParseText(nullptr, "0,19,22"), Ints({0, 19, 22}));
  EXPECT_EQ(ParseText(nullptr, "uniform"), Value("uniform"));
  EXPECT_EQ(ParseText(nullptr, "3"), Value(3));
  EXPECT_EQ(ParseText(nullptr, "3.5"), Value(3.5));
  EXPECT_EQ(ParseText(nullptr, "false"), Value(false));
  EXPECT_EQ(ParseText(nullptr, "none"), Value("none"));
  EXPECT_EQ(ParseText(nullptr, ""), Value(""));
  EXPECT_EQ(ParseText(nullptr, "0,type:Embedding"), List({0, "type:Embedding"}));
  EXPECT_EQ(ParseText(nullptr, "type:a{1,2}"), Value("type:a{1,2}"));
}

TEST(ParseText, InfinityAndNanAreText) {
  EXPECT_EQ(ParseText(nullptr, "inf"), Value("inf"));
  EXPECT_EQ(ParseText(nullptr, "nan"), Value("nan"));
  EXPECT_EQ(ParseText(nullptr, "1e999"), Value("1e999"));
}

RC_GTEST_PROP(ParseText, NumbersReadBack, (int64_t number)) {
  const Field field = Field::Int("x", "");
  RC_ASSERT(ParseText(&field, std::to_string(number)) == Value(number));
}

RC_GTEST_PROP(ParseText, TakesAnyText, (const std::string& text)) {
  const Field string = Field::String("x", ""), shape = Field::Shape("x", "");
  RC_ASSERT(ParseText(&string, text) == Value(text));
  ParseText(&shape, text);
  ParseText(nullptr, text);
}

// ---- help ----

TEST(FieldHelp, ShowsWhatAUserMayWrite) {
  EXPECT_EQ(FieldHelp(Table()),
            "name      takes                   default   help\n"
            "in        an integer, at least 1  required  size of the input\n"
            "out       an integer, at least 1  required  size of the output\n"
            "bias      true or false           true      adds a vector\n"
            "momentum  a number, or none       0.1       share of the new\n"
            "causal    true or false           false     only the past\n");
}

TEST(FieldHelp, FitsATerminal) {
  const std::string many = "a word or two, and some more of them until the line is full at last";
  EXPECT_EQ(FieldHelp({Field::Int("size", many), Field::Bool("on", "whether").Default(true)}),
            "name  help (takes; default)\n"
            "size  a word or two, and some more of them until the line is full at last (an\n"
            "      integer; required)\n"
            "on    whether (true or false; default true)\n");
}

TEST(FieldNames, LeaveOutRefusedOnes) {
  EXPECT_THAT(FieldNames(Table()), ElementsAre("in", "out", "bias", "momentum", "causal"));
}

TEST(FindField, ByNameOnly) {
  const FieldTable table = Table();
  ASSERT_NE(FindField(table, "out"), nullptr);
  EXPECT_EQ(FindField(table, "out")->name, "out");
  EXPECT_EQ(FindField(table, "Out"), nullptr);
  EXPECT_EQ(FindField(table, ""), nullptr);
}

TEST(Place, EndsInAColon) {
  EXPECT_EQ(Place("net.lua:4"), "net.lua:4: ");
  EXPECT_EQ(Place(""), "");
}

TEST(Fields, LimitsInATable) {
  struct Limits {
    Field field;
    std::vector<Value> taken, refused;
  };
  const Limits cases[] = {
      {Field::Int("x", "").AtLeast(0).AtMost(3), {0, 3, 3.0}, {-1, 4, 2.5}},
      {Field::Int("x", ""), {2147483647, -2147483647}, {int64_t{2147483648}, 1e10}},
      {Field::Number("x", "").Above(0), {1e-300, 1}, {0, 0.0, -1, kNan}},
      {Field::Number("x", "").AtLeast(0).Below(1), {0, 0.999}, {1, 1.0, -1e-300}},
      {Field::Numbers("x", 2, "").AtLeast(0).Below(1),
       {List({0, 0.5})},
       {List({0, 1}), List({-0.5, 0}), List({kNan, 0})}},
      {Field::Shape("x", "").AtLeast(1).AtMost(9), {9, Ints({1, 9})}, {10, Ints({1, 10})}},
      {Field::Int("x", "").AtLeast(1).Optional(), {1, "none", Value()}, {0, "nothing"}},
  };
  for (const auto& [field, taken, refused] : cases) {
    for (const Value& value : taken) EXPECT_EQ(Refusal(field, value), "") << value.ToLua();
    for (const Value& value : refused) {
      EXPECT_THAT(Refusal(field, value), HasSubstr("Thing: x expects " + field.Expected()))
          << value.ToLua();
    }
  }
}

TEST(Fields, NamedOnlyOnesHaveNoPosition) {
  const FieldTable table = {Field::Int("a", "").Default(0),
                            Field::Int("b", "").NamedOnly().Default(0),
                            Field::Int("c", "").Default(0)};
  const Value args = Canonicalize(table, MakeCall({1, 2}, {{"b", 3}}));
  EXPECT_EQ(args["a"], Value(1));
  EXPECT_EQ(args["b"], Value(3));
  EXPECT_EQ(args["c"], Value(2));
}

TEST(Fields, AFlagValueOnlyConcernsFlags) {
  const Field field = Field::String("x", "").Optional().FlagValue("latest");
  EXPECT_EQ(field.flag_value, Value("latest"));
  EXPECT_TRUE(field.fallback.is_null());
  EXPECT_EQ(Canonical(field, "other"), Value("other"));
  EXPECT_TRUE(Canonical(field, Value()).is_null());
  EXPECT_EQ(field.Expected(), Field::String("x", "").Optional().Expected());
}

}  // namespace
}  // namespace strata
