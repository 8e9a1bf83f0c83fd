#include "engine/base/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using Kind = Value::Kind;

const FunctionRef kFunction = {.id = 3, .where = "alexnet.lua:12", .digest = "abc"};

Value Map(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

/// A random tree of maps and lists with integers as leaves.
Value Tree(int depth) {
  const int kind = *rc::gen::inRange(0, depth > 0 ? 3 : 1);
  if (kind == 0) return *rc::gen::inRange(0, 100);
  const auto children = *rc::gen::inRange(0, 4);
  Value tree = kind == 1 ? Value(Value::List{}) : Map({});
  for (int i = 0; i < children; ++i) {
    if (kind == 1) {
      tree.Append(Tree(depth - 1));
    } else {
      tree.Set(std::string(1, static_cast<char>('a' + i)), Tree(depth - 1));
    }
  }
  return tree;
}

/// The same value with the entries of every map in reverse order.
Value Reversed(const Value& value) {
  if (value.is_list()) {
    Value::List list = value.as_list();
    for (Value& element : list) element = Reversed(element);
    return list;
  }
  if (!value.is_map()) return value;
  Value::Map map = value.as_map();
  for (auto& [key, element] : map) element = Reversed(element);
  std::reverse(map.begin(), map.end());
  return Map(std::move(map));
}

/// Changes one leaf and returns its path, such as "a.0.b"; "" if there is no leaf.
std::string ChangeOneLeaf(Value& value) {
  if (value.is_int()) {
    value = value.as_int() + 1;
    return ".";
  }
  const auto descend = [&](Value child, const std::string& name, const auto& put) {
    const std::string path = ChangeOneLeaf(child);
    if (path.empty()) return path;
    put(std::move(child));
    return "." + name + (path == "." ? "" : path);
  };
  if (value.is_list()) {
    Value::List list = value.as_list();
    for (size_t i = list.size(); i-- > 0;) {
      const std::string path =
          descend(list[i], std::to_string(i), [&](Value child) { list[i] = std::move(child); });
      if (path.empty()) continue;
      value = list;
      return path;
    }
    return "";
  }
  const Value::Map entries = value.as_map();
  for (const auto& [key, child] : entries) {
    const std::string& name = key;
    const std::string path =
        descend(child, name, [&](Value changed) { value.Set(name, std::move(changed)); });
    if (!path.empty()) return path;
  }
  return "";
}

// ---- Kinds and content

TEST(Value, KnowsItsKind) {
  EXPECT_EQ(Value().kind(), Kind::kNull);
  EXPECT_EQ(Value(true).kind(), Kind::kBool);
  EXPECT_EQ(Value(3).kind(), Kind::kInt);
  EXPECT_EQ(Value(int64_t{3}).kind(), Kind::kInt);
  EXPECT_EQ(Value(3.0).kind(), Kind::kDouble);
  EXPECT_EQ(Value("a").kind(), Kind::kString);
  EXPECT_EQ(Value(std::string_view("a")).kind(), Kind::kString);
  EXPECT_EQ(Value(kFunction).kind(), Kind::kFunction);
  EXPECT_EQ(Value(Value::List{}).kind(), Kind::kList);
  EXPECT_EQ(Map({}).kind(), Kind::kMap);
}

TEST(Value, GivesItsContent) {
  EXPECT_EQ(Value(true).as_bool(), true);
  EXPECT_EQ(Value(3).as_int(), 3);
  EXPECT_EQ(Value(2.5).as_double(), 2.5);
  EXPECT_EQ(Value("abc").as_string(), "abc");
  EXPECT_EQ(Value(kFunction).as_function().id, 3);
  EXPECT_EQ(Value(Value::List{1, "a"}).as_list()[1].as_string(), "a");
  EXPECT_THAT(Value::IntList({1, 2}).as_ints(), ElementsAre(1, 2));
}

TEST(Value, RefusesToBeAnotherKind) {
  EXPECT_EQ(ConfigErrorOf([] { Value(1).as_bool(); }), "expected true or false, got the number 1");
  EXPECT_EQ(ConfigErrorOf([] { Value("1").as_int(); }),
            "expected a whole number, got the string \"1\"");
  EXPECT_EQ(ConfigErrorOf([] { Value(true).as_double(); }), "expected a number, got true");
  EXPECT_EQ(ConfigErrorOf([] { Value().as_string(); }), "expected a string, got nothing");
  EXPECT_EQ(ConfigErrorOf([] { Value(1).as_function(); }), "expected a function, got the number 1");
  EXPECT_EQ(ConfigErrorOf([] { Value(kFunction).as_list(); }),
            "expected a list, got a function (alexnet.lua:12)");
  EXPECT_EQ(ConfigErrorOf([] {
              Value(Value::List{1, 2}).as_map();
            }),
            "expected a table with names, got the list {1, 2}");
  EXPECT_EQ(ConfigErrorOf([] {
              Value(Value::List{1, 2.5}).as_ints();
            }),
            "expected a whole number, got the number 2.5");
}

// ---- Numbers

TEST(Value, IntegersAreDoublesToo) {
  EXPECT_EQ(Value(3).as_double(), 3.0);
  EXPECT_TRUE(Value(3).is_number());
  EXPECT_TRUE(Value(3.5).is_number());
  EXPECT_FALSE(Value("3").is_number());
}

TEST(Value, WholeDoublesAreIntegersToo) {
  EXPECT_TRUE(Value(3.0).is_int());
  EXPECT_EQ(Value(3.0).as_int(), 3);
  EXPECT_EQ(Value(-0.0).as_int(), 0);
  EXPECT_EQ(Value(1e15).as_int(), 1'000'000'000'000'000);
  EXPECT_FALSE(Value(3.5).is_int());
  EXPECT_FALSE(Value("3").is_int());
}

TEST(Value, WholeDoublesEndWhereInt64Ends) {
  EXPECT_EQ(Value(1e16).as_int(), 10'000'000'000'000'000);
  EXPECT_EQ(Value(-0x1p63).as_int(), INT64_MIN);
  EXPECT_EQ(Value(0x1p62).as_int(), int64_t{1} << 62);
  EXPECT_FALSE(Value(0x1p63).is_int());
  EXPECT_FALSE(Value(std::nextafter(-0x1p63, -1e300)).is_int());
  EXPECT_FALSE(Value(std::numeric_limits<double>::infinity()).is_int());
  EXPECT_FALSE(Value(-std::numeric_limits<double>::infinity()).is_int());
  EXPECT_FALSE(Value(std::nan("")).is_int());
}

// ---- Maps and lists

TEST(Value, MapKeepsTheOrderOfSetting) {
  Value map;
  map.Set("b", 1).Set("a", 2).Set("b", 3);
  EXPECT_EQ(map.ToLua(), "{b=3, a=2}");
  EXPECT_EQ(map["b"].as_int(), 3);
  EXPECT_TRUE(map.Has("a"));
}

TEST(Value, MissingEntriesAreNull) {
  const Value map = Map({{"a", 1}});
  EXPECT_THAT(map.Find("b"), IsNull());
  EXPECT_FALSE(map.Has("b"));
  EXPECT_TRUE(map["b"].is_null());
  EXPECT_THAT(Value().Find("b"), IsNull());
  EXPECT_THAT(ConfigErrorOf([] { Value(1).Find("b"); }), HasSubstr("expected a table with names"));
}

TEST(Value, SetRefusesWhatIsNoMap) {
  Value number = 1;
  EXPECT_THAT(ConfigErrorOf([&] { number.Set("a", 1); }), HasSubstr("expected a table with names"));
}

TEST(Value, Erase) {
  Value map = Map({{"a", 1}, {"b", 2}});
  map.Erase("a");
  map.Erase("none");
  EXPECT_EQ(map, Map({{"b", 2}}));
  Value null;
  null.Erase("a");
  EXPECT_TRUE(null.is_null());
}

TEST(Value, SetPathMakesMapsOnTheWay) {
  Value value;
  value.SetPath("optimizer.lr", 0.1);
  value.SetPath("optimizer.type", "sgd");
  value.SetPath("steps", 5);
  EXPECT_EQ(value.ToLua(), "{optimizer={lr=0.1, type=\"sgd\"}, steps=5}");
  value.SetPath("optimizer.lr", 0.2);
  EXPECT_EQ(value["optimizer"]["lr"].as_double(), 0.2);
}

TEST(Value, SetPathRefusesToGoThroughOtherThings) {
  Value value = Map({{"optimizer", "sgd"}});
  EXPECT_THAT(ConfigErrorOf([&] { value.SetPath("optimizer.lr", 0.1); }),
              HasSubstr("got the string \"sgd\""));
}

TEST(Value, SetPathGoesThroughNull) {
  Value value = Map({{"optimizer", Value()}});
  value.SetPath("optimizer.betas.first", 0.9);
  EXPECT_EQ(value.ToLua(), "{optimizer={betas={first=0.9}}}");
}

RC_GTEST_PROP(ValueLaws, AMapIsAsStdMap, ()) {
  Value map = Map({});
  std::map<std::string, int> model;
  const int steps = *rc::gen::inRange(0, 30);
  for (int i = 0; i < steps; ++i) {
    const std::string key(1, *rc::gen::inRange('a', 'f'));
    if (*rc::gen::inRange(0, 3) == 0) {
      map.Erase(key);
      model.erase(key);
    } else {
      map.Set(key, i);
      model[key] = i;
    }
  }
  RC_ASSERT(map.as_map().size() == model.size());
  for (const auto& [key, i] : model) RC_ASSERT(map[key].as_int() == i);
  for (char c = 'a'; c < 'f'; ++c) RC_ASSERT(map.Has(std::string(1, c)) == model.contains({c}));
}

TEST(Value, AppendMakesAList) {
  Value list;
  list.Append(1);
  list.Append("a");
  EXPECT_EQ(list, Value(Value::List{1, "a"}));
  Value map = Map({});
  EXPECT_THAT(ConfigErrorOf([&] { map.Append(1); }), HasSubstr("expected a list"));
}

// ---- Equality and differences

TEST(ValueEquality, IsByKindAndContent) {
  EXPECT_EQ(Value(3), Value(int64_t{3}));
  EXPECT_NE(Value(3), Value(3.0));
  EXPECT_NE(Value("a"), Value("b"));
  EXPECT_NE(Value(), Value(false));
  EXPECT_EQ(Value(Value::List{1, 2}), Value::IntList({1, 2}));
  EXPECT_NE(Value(Value::List{}), Map({}));
}

TEST(ValueEquality, OfMapsIgnoresTheOrder) {
  EXPECT_EQ(Map({{"a", 1}, {"b", 2}}), Map({{"b", 2}, {"a", 1}}));
  EXPECT_NE(Map({{"a", 1}, {"b", 2}}), Map({{"b", 1}, {"a", 2}}));
  EXPECT_NE(Map({{"a", 1}}), Map({{"a", 1}, {"b", 2}}));
  EXPECT_NE(Map({{"a", 1}}), Map({{"b", 1}}));
  EXPECT_EQ(Value(Value::List{Map({{"a", 1}, {"b", 2}})}),
            Value(Value::List{Map({{"b", 2}, {"a", 1}})}));
}

TEST(ValueEquality, OfFunctionsIsByPlaceAndCode) {
  FunctionRef other = kFunction;
  other.id = 9;  // the same function in another Lua state
  EXPECT_EQ(Value(kFunction), Value(other));
  other.digest = "abd";
  EXPECT_NE(Value(kFunction), Value(other));
}

TEST(FirstDifference, NamesThePathAndBothValues) {
  const Value a = Map({{"steps", 5}, {"layers", Value::List{Map({{"out", 64}}), 1}}});
  Value b = a;
  EXPECT_EQ(FirstDifference(a, b), "");
  b.Set("layers", Value::List{Map({{"out", 65}}), 1});
  EXPECT_EQ(FirstDifference(a, b), "layers.0.out: 64 against 65");
  b.Set("steps", 6.0);
  EXPECT_EQ(FirstDifference(a, b), "steps: 5 against 6");
}

TEST(FirstDifference, OfMissingThings) {
  EXPECT_EQ(FirstDifference(Map({{"a", 1}}), Map({})), "a: 1 against nil");
  EXPECT_EQ(FirstDifference(Map({}), Map({{"a", 1}})), "a: nil against 1");
  EXPECT_EQ(FirstDifference(Value::IntList({1}), Value::IntList({1, 2})), "1: nil against 2");
  EXPECT_EQ(FirstDifference(Value(1), Value("a")), "1 against \"a\"");
  EXPECT_EQ(FirstDifference(Map({{"a", Value::List{}}}), Map({{"a", Map({})}})),
            "a: {} against {}");
}

TEST(FirstDifference, IgnoresTheOrderOfMaps) {
  EXPECT_EQ(FirstDifference(Map({{"a", 1}, {"b", 2}}), Map({{"b", 2}, {"a", 1}})), "");
  EXPECT_EQ(FirstDifference(Map({{"a", 1}, {"b", 2}}), Map({{"b", 3}, {"a", 1}})),
            "b: 2 against 3");
}

RC_GTEST_PROP(FirstDifferenceLaws, EqualMeansNoDifference, ()) {
  const Value a = Tree(3), b = Tree(3);
  RC_ASSERT(FirstDifference(a, a).empty());
  RC_ASSERT((a == b) == FirstDifference(a, b).empty());
  RC_ASSERT((a == b) == (b == a));
}

RC_GTEST_PROP(FirstDifferenceLaws, TheOrderOfMapsNeverCounts, ()) {
  const Value a = Tree(4);
  RC_ASSERT(a == Reversed(a));
  RC_ASSERT(FirstDifference(a, Reversed(a)).empty());
}

RC_GTEST_PROP(FirstDifferenceLaws, NamesTheOneLeafThatDiffers, ()) {
  const Value a = Map({{"tree", Tree(4)}, {"leaf", 1}});
  Value b = a;
  const std::string path = ChangeOneLeaf(b);
  RC_ASSERT(a != b);
  RC_ASSERT(FirstDifference(a, b).starts_with(path.substr(1) + ": "));
  RC_ASSERT(FirstDifference(a, Reversed(b)).starts_with(path.substr(1) + ": "));
}

// ---- Text

TEST(Value, ToLua) {
  EXPECT_EQ(Value().ToLua(), "nil");
  EXPECT_EQ(Value(true).ToLua(), "true");
  EXPECT_EQ(Value(-3).ToLua(), "-3");
  EXPECT_EQ(Value(0.1).ToLua(), "0.1");
  EXPECT_EQ(Value(kFunction).ToLua(), "function(alexnet.lua:12)");
  EXPECT_EQ(Value(Value::List{3, Value::List{}, "a"}).ToLua(), "{3, {}, \"a\"}");
  EXPECT_EQ(Map({{"kernel_size", 11}, {"2d", 1}, {"end", 2}, {"", 3}}).ToLua(),
            "{kernel_size=11, [\"2d\"]=1, [\"end\"]=2, [\"\"]=3}");
}

TEST(Value, ToLuaEscapesStrings) {
  EXPECT_EQ(Value("say \"a\\b\"").ToLua(), R"("say \"a\\b\"")");
  EXPECT_EQ(Value("a\nb\tc").ToLua(), R"("a\nb\009c")");
  EXPECT_EQ(Value(std::string("\0"
                              "1",
                              2))
                .ToLua(),
            R"("\0001")");
  EXPECT_EQ(Value("\xC3\xA4").ToLua(), "\"\xC3\xA4\"");
}

TEST(Value, DescribeIsForErrorMessages) {
  EXPECT_EQ(Value().Describe(), "nothing");
  EXPECT_EQ(Value(false).Describe(), "false");
  EXPECT_EQ(Value(3.5).Describe(), "the number 3.5");
  EXPECT_EQ(Value("abc").Describe(), "the string \"abc\"");
  EXPECT_EQ(Value::IntList({1, 2}).Describe(), "the list {1, 2}");
  EXPECT_EQ(Value::IntList(std::vector<int64_t>(9)).Describe(), "a list of 9");
  EXPECT_EQ(Map({{"a", 1}}).Describe(), "a table with names");
}

TEST(Value, DescribeCutsOffLongStrings) {
  EXPECT_EQ(Value(std::string(1000, 'x')).Describe(),
            "the string \"" + std::string(80, 'x') + "...\"");
}

// ---- Digest

TEST(Digest, IsFnv1a) {
  EXPECT_EQ(Digest(""), "cbf29ce484222325");
  EXPECT_EQ(Digest("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(Digest("foobar"), "85944171f73967e8");
}

}  // namespace
}  // namespace strata
