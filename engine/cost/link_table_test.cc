#include "engine/cost/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A table of three ranks on two machines; the slowest link is between ranks 0 and 2.
LinkTable Three() { return {"gloo", {"a", "a", "b"}, {{1e-5, 2e9}, {5e-5, 1e8}, {4e-5, 2e8}}}; }

TEST(LinkTable, HasALinkForEachTwoRanks) {
  const LinkTable table = Three();
  EXPECT_EQ(table.Of(0, 1), (LinkRates{1e-5, 2e9}));
  EXPECT_EQ(table.Of(2, 0), (LinkRates{5e-5, 1e8}));
  EXPECT_EQ(table.Of(1, 2), (LinkRates{4e-5, 2e8}));
  EXPECT_EQ(table.Slowest({1, 2}), table.Of(1, 2));
  EXPECT_EQ(table.Slowest({0, 1, 2}), table.Of(0, 2));
  EXPECT_FALSE(table.Slowest({1}).takes_time());
}

TEST(LinkTable, TheSlowerOfTwoHasTheWorseOfBoth) {
  const LinkRates near = {1e-6, 1e8}, wide = {1e-3, 1e9}, none;
  EXPECT_EQ(near.SlowerOf(wide), (LinkRates{1e-3, 1e8}));
  EXPECT_EQ(wide.SlowerOf(near), (LinkRates{1e-3, 1e8}));
  EXPECT_EQ(none.SlowerOf(near), near);
  EXPECT_EQ(near.SlowerOf(none), near);
}

TEST(LinkTable, AFileGivesItBack) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "link_table_test.json").string();
  std::ofstream(path) << ToValue(Three()).ToJson(1);
  EXPECT_EQ(ReadLinksFile(path), Three());
  EXPECT_THAT(ConfigErrorOf([&] { ReadLinksFile(path + ".no"); }),
              AllOf(HasSubstr("links: cannot read the file"), HasSubstr(".json.no")));
  std::ofstream(path) << "{\"links\": 1";
  EXPECT_THAT(ConfigErrorOf([&] { ReadLinksFile(path); }), HasSubstr("links: " + path));
}

std::string ErrorOf(const std::string& json) {
  return ConfigErrorOf([&] { ReadLinks(Value::FromJson(json), "links: a.json"); });
}

/// The error of reading a table of two ranks with these pairs.
std::string WithPairs(const std::string& pairs) {
  return ErrorOf(R"({"links": 1, "transport": "gloo", "hosts": ["a", "b"], "pairs": )" + pairs +
                 "}");
}

TEST(LinkTable, WrongFilesAreRefusedByName) {
  const std::string pair = R"({"ranks": [0, 1], "latency": 1e-5, "bandwidth": 1e9})";
  EXPECT_EQ(WithPairs("[" + pair + "]"), "no error");
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("links: a.json: expected a map"));
  EXPECT_THAT(ErrorOf(R"({"links": 2})"), AllOf(HasSubstr("links"), HasSubstr("at most 1")));
  EXPECT_THAT(ErrorOf(R"({"links": 1, "transports": "gloo"})"), HasSubstr("mean \"transport\""));
  EXPECT_THAT(ErrorOf(R"({"links": 1, "transport": "glo", "hosts": ["a", "b"], "pairs": []})"),
              AllOf(HasSubstr("transport"), HasSubstr("\"gloo\"")));
  EXPECT_THAT(ErrorOf(R"({"links": 1, "transport": "gloo", "hosts": ["a"], "pairs": []})"),
              HasSubstr("the machines of 2 to 1,024 ranks"));
  EXPECT_THAT(ErrorOf(R"({"links": 1, "transport": "gloo", "hosts": ["a", 3], "pairs": []})"),
              HasSubstr("rank 1 is on no machine with a name: the number 3"));
  EXPECT_THAT(WithPairs("[]"), HasSubstr("ranks 0 and 1 have no link"));
  EXPECT_THAT(WithPairs("[" + pair + "," + pair + "]"),
              HasSubstr("pair 1: ranks 0 and 1 were there before"));
  EXPECT_THAT(WithPairs(R"([{"ranks": [0, 2], "latency": 0, "bandwidth": 1}])"),
              HasSubstr("expected two different ranks of 0 to 1, got 0 and 2"));
  EXPECT_THAT(WithPairs(R"([{"ranks": [0, 1], "latency": 0, "bandwidth": 0}])"),
              AllOf(HasSubstr("bandwidth"), HasSubstr("above 0")));
  EXPECT_THAT(WithPairs(R"([{"ranks": [0, 1], "latensy": 0, "bandwidth": 1}])"),
              HasSubstr("did you mean \"latency\""));
}

TEST(LinkTable, ShowsPairsOrMachines) {
  EXPECT_THAT(LinksText(Three()), AllOf(HasSubstr("a (rank 0)  b (rank 2)"), HasSubstr("100 MB/s"),
                                        HasSubstr("50 us")));
  constexpr size_t kRanks = 12;
  std::vector<std::string> hosts(8, "a");
  hosts.resize(kRanks, "b");
  std::vector<LinkRates> pairs(kRanks * (kRanks - 1) / 2, {1e-5, 1e9});
  pairs.back().bandwidth = 5e8;  // the link of ranks 10 and 11
  const std::string text = LinksText({"gloo", hosts, pairs});
  EXPECT_THAT(text, AllOf(HasSubstr("a (ranks 0-7)   each other"),
                          HasSubstr("a (ranks 0-7)   b (ranks 8-11)"), HasSubstr("500 MB/s"),
                          Not(HasSubstr("rank 0)"))));
}

}  // namespace
}  // namespace strata
