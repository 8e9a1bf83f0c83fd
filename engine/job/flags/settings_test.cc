#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/job/flags/flags.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Value& Defaults() {
  static const Value defaults = MapOf(
      {{"depth", 1}, {"rate", 0.5}, {"fast", false}, {"word", "a"}, {"hidden_sizes", Ints({1})}});
  return defaults;
}

// ---- strata.load's table

TableSettings Table(const Value& table) { return {table, "strata.load", "main.lua:3"}; }

Value TableOptions(const Value& table) {
  TableSettings settings = Table(table);
  Value options = settings.TakeOptions(Defaults(), "net.lua:2");
  settings.CheckAllTaken("net.lua");
  return options;
}

TEST(TableSettings, SetOptionsOfTheirKinds) {
  EXPECT_EQ(TableOptions({}), Defaults());
  EXPECT_EQ(TableOptions(Value::List{}), Defaults());
  EXPECT_EQ(TableOptions(MapOf({{"depth", 2},
                                {"rate", 3},
                                {"fast", true},
                                {"word", "b"},
                                {"hidden-sizes", Ints({4, 5})}})),
            MapOf({{"depth", 2},
                   {"rate", 3},
                   {"fast", true},
                   {"word", "b"},
                   {"hidden_sizes", Ints({4, 5})}}));
  EXPECT_EQ(TableOptions(MapOf({{"hidden_sizes", 4}}))["hidden_sizes"], Ints({4}));
}

TEST(TableSettings, SetKeysOfTheJob) {
  TableSettings settings = Table(MapOf({{"pipe", 2}, {"steps", 5}, {"depth", 3}}));
  EXPECT_EQ(settings.job(), MapOf({{"parallel", MapOf({{"pipe", 2}})}, {"steps", 5}}));
  EXPECT_EQ(settings.TakeOptions(Defaults(), "")["depth"], Value(3));
  settings.CheckAllTaken("net.lua");
}

TEST(TableSettings, RefuseWhatDoesNotFit) {
  const auto error = [](const Value& table) { return ErrorOf([&] { TableOptions(table); }); };
  EXPECT_EQ(error(MapOf({{"dept", 2}})),
            "main.lua:3: strata.load: net.lua has no option \"dept\", nor the job such a key; did "
            "you mean \"depth\"?");
  EXPECT_THAT(error(MapOf({{"stepz", 2}})), HasSubstr("did you mean \"steps\"?"));
  EXPECT_EQ(error(MapOf({{"depth", "2"}})),
            "main.lua:3: strata.load: depth expects a number; got the string \"2\"");
  EXPECT_THAT(error(MapOf({{"fast", 1}})), HasSubstr("fast expects true or false"));
  EXPECT_THAT(error(MapOf({{"word", true}})), HasSubstr("word expects"));
  EXPECT_THAT(error(MapOf({{"steps", "five"}})), HasSubstr("steps expects"));
  EXPECT_THAT(error(Value::List{2}), HasSubstr("got the number 2 without a name"));
}

TEST(TableSettings, AScriptWithoutOptionsTakesNone) {
  EXPECT_THAT(ErrorOf([] {
                Table(MapOf({{"depth", 2}})).CheckAllTaken("net.lua");
              }),
              HasSubstr("net.lua has no option \"depth\""));
}

// ---- The arguments of `strata run`

Value ArgumentOptions(const std::vector<std::string>& arguments) {
  ArgumentSettings settings(arguments);
  Value options = settings.TakeOptions(Defaults(), "net.lua:2");
  settings.CheckAllTaken();
  return options;
}

std::vector<std::string> Rest(const std::vector<std::string>& arguments) {
  ArgumentSettings settings(arguments);
  settings.TakeOptions(Defaults(), "net.lua:2");
  return settings.rest();
}

TEST(ArgumentSettings, SetOptionsInAllFormsOfAFlag) {
  EXPECT_EQ(ArgumentOptions({}), Defaults());
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--depth=2"}, {"--depth", "2"}, {"--depth=1", "a", "--depth=2"}}) {
    EXPECT_EQ(ArgumentOptions(arguments)["depth"], Value(2));
  }
  EXPECT_EQ(ArgumentOptions({"--hidden-sizes=4,5"})["hidden_sizes"], Ints({4, 5}));
  EXPECT_EQ(ArgumentOptions({"--hidden_sizes="})["hidden_sizes"], Value(Value::List{}));
  EXPECT_EQ(ArgumentOptions({"--word="})["word"], Value(""));
  EXPECT_EQ(ArgumentOptions({"--rate", "-3"})["rate"], Value(-3));
  for (const char* on : {"--fast", "--fast=true", "--fast=on"}) {
    EXPECT_EQ(ArgumentOptions({on})["fast"], Value(true)) << on;
  }
  EXPECT_EQ(ArgumentOptions({"--fast", "--no-fast"})["fast"], Value(false));
  EXPECT_EQ(ArgumentOptions({"--fast", "no"})["fast"], Value(false));
}

TEST(ArgumentSettings, LeaveTheRest) {
  EXPECT_THAT(Rest({"in.txt", "--depth", "2", "-v", "--fast", "out.txt"}),
              ElementsAre("in.txt", "-v", "out.txt"));
  EXPECT_THAT(Rest({"--depth=2", "--", "--depth=3", "--other"}),
              ElementsAre("--", "--depth=3", "--other"));
  EXPECT_EQ(ArgumentOptions({"--depth=2", "--", "--depth=3"})["depth"], Value(2));
  EXPECT_THAT(Rest({"--pipe=2", "-", "--"}), ElementsAre("--pipe=2", "-", "--")) << "no job's keys";
}

TEST(ArgumentSettings, RefuseWhatDoesNotFit) {
  const auto error = [](const std::vector<std::string>& arguments) {
    return ErrorOf([&] { ArgumentOptions(arguments); });
  };
  EXPECT_EQ(error({"--depth=two"}),
            "the command line: depth expects a number; got the string \"two\"");
  EXPECT_EQ(error({"--depth"}), "the command line: --depth needs a value: a number");
  EXPECT_EQ(error({"--depth", "--fast"}), "the command line: --depth needs a value: a number");
  EXPECT_THAT(error({"--dept=2"}), HasSubstr("no option --dept; did you mean \"depth\"?"));
  EXPECT_EQ(
      error({"--verbose"}),
      "there is no option --verbose; it is one of depth, rate, fast, word, hidden_sizes; what "
      "the script reads from arg stands behind \"--\"");
}

TEST(ArgumentSettings, SeveralTablesShareTheFlags) {
  ArgumentSettings settings({"--heads=4", "--depth=2"});
  EXPECT_EQ(settings.TakeOptions(Defaults(), "")["depth"], Value(2));
  EXPECT_THAT(ErrorOf([&] { settings.CheckAllTaken(); }), HasSubstr("--heads"));
  EXPECT_EQ(settings.TakeOptions(MapOf({{"heads", 1}}), "")["heads"], Value(4));
  settings.CheckAllTaken();
  EXPECT_THAT(settings.rest(), IsEmpty());
}

TEST(ArgumentSettings, WithoutOptionsAllIsTheScripts) {
  ArgumentSettings settings({"--anything", "goes"});
  settings.CheckAllTaken();
  EXPECT_THAT(settings.rest(), ElementsAre("--anything", "goes"));
}

}  // namespace
}  // namespace strata
