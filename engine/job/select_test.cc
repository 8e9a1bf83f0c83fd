#include "engine/job/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<LayerSpec> Model() {
  LayerSpec pool = FunctionLayer("net.lua:7");
  pool.name = "global_pool";
  LayerSpec rms = FunctionLayer("net.lua:8");
  rms.type = "RMS";
  return {Layer("Embedding", {10, 4}),
          Layer("TransformerDecoderLayer", {4, 2}, {{"name", "first"}}),
          Layer("TransformerDecoderLayer", {4, 2}),
          pool,
          rms,
          Layer("Linear", {4, 10}, {{"name", "head"}})};
}

std::vector<int> OfType(std::string_view regex) {
  return LayersOfType(regex, Model(), "partition");
}

TEST(LayersOfType, SearchesTheTypeIgnoringCase) {
  EXPECT_THAT(OfType("transformer"), ElementsAre(1, 2));
  EXPECT_THAT(OfType("TRANSFORMERdecoder"), ElementsAre(1, 2));
  EXPECT_THAT(OfType("embedding|linear"), ElementsAre(0, 5));
  EXPECT_THAT(OfType("^linear$"), ElementsAre(5));
  EXPECT_THAT(OfType("conv"), IsEmpty());
}

TEST(LayersOfType, SearchesNamesOfFunctionsOnly) {
  EXPECT_THAT(OfType("global"), ElementsAre(3));
  EXPECT_THAT(OfType("rms"), ElementsAre(4));
  EXPECT_THAT(OfType("head"), IsEmpty()) << "a built-in layer's name is not its type";
}

TEST(LayersOfType, KeepsClassesOfCharacters) {
  EXPECT_THAT(OfType("\\D"), ElementsAre(0, 1, 2, 3, 4, 5)) << "the pattern itself keeps its case";
  EXPECT_THAT(OfType("\\d"), IsEmpty());
}

TEST(LayersOfType, BrokenExpressionsAreRefused) {
  for (const char* regex : {"(", "[", "*", "a{2,1}", "(?<", "\\"}) {
    EXPECT_THAT(ErrorOf([&] { OfType(regex); }),
                HasSubstr(std::string("partition: \"") + regex + "\" is not a regular expression"))
        << regex;
  }
}

TEST(LayersOfType, NoExpressionRunsForEver) {
  EXPECT_THAT(OfType("(.*)*(.*)*(.*)*(.*)*x$"), IsEmpty());
  EXPECT_THAT(OfType("(r|rr|[a-z]*)*q"), IsEmpty());
  EXPECT_NE(ErrorOf([] { OfType(std::string(100000, '(')); }), "");
}

std::vector<int> Select(Value::List items) {
  return SelectLayers({std::move(items)}, Model(), "freeze");
}

TEST(SelectLayers, ByIndexNameAndType) {
  EXPECT_THAT(Select({}), IsEmpty());
  EXPECT_THAT(Select({0, 5}), ElementsAre(0, 5));
  EXPECT_THAT(Select({"head", "first"}), ElementsAre(1, 5));
  EXPECT_THAT(Select({"type:decoder"}), ElementsAre(1, 2));
  EXPECT_THAT(Select({"2"}), ElementsAre(2)) << "a path without a name is the index";
}

TEST(SelectLayers, AscendingAndEachOnce) {
  EXPECT_THAT(Select({5, "type:decoder", 1, "first", 0}), ElementsAre(0, 1, 2, 5));
}

TEST(SelectLayers, Errors) {
  const auto error = [](const Value& item) { return ErrorOf([&] { Select({item}); }); };
  EXPECT_EQ(error(6), "freeze: there is no layer 6; the layers are 0 to 5");
  EXPECT_EQ(error(-1), "freeze: there is no layer -1; the layers are 0 to 5");
  EXPECT_EQ(error("haed"),
            "freeze: no layer has the name \"haed\"; did you mean \"head\"?; a layer is chosen by "
            "index, by name or by \"type:REGEX\"");
  EXPECT_EQ(error("type:conv"), "freeze: no layer's type matches \"conv\"");
  EXPECT_THAT(error("type:("), HasSubstr("freeze: \"(\" is not a regular expression"));
  EXPECT_EQ(error(true), "freeze expects indices, names or \"type:REGEX\"; got true");
  EXPECT_EQ(error(0.5), "freeze expects indices, names or \"type:REGEX\"; got the number 0.5");
  EXPECT_THAT(error(Value()), HasSubstr("got nothing"));
}

RC_GTEST_PROP(SelectLayers, IndicesSelectThemselves, ()) {
  const auto indices = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 6));
  Value::List items(indices.begin(), indices.end());
  const std::vector<int> selected = Select(items);
  RC_ASSERT(std::is_sorted(selected.begin(), selected.end()));
  for (int index : indices) {
    RC_ASSERT(std::count(selected.begin(), selected.end(), index) == 1);
  }
  for (int index : selected) {
    RC_ASSERT(std::count(indices.begin(), indices.end(), index) >= 1);
  }
}

RC_GTEST_PROP(LayersOfType, AnyTextIsAnExpressionOrRefused, (const std::string& regex)) {
  ErrorOf([&] { OfType(regex); });
}

}  // namespace
}  // namespace strata
