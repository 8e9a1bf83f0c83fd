// Tests of host files and of picking hosts and slots.
#include "launcher/place/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// "host1:0,1 host2:0".
std::string Show(const std::vector<Host>& hosts) {
  std::vector<std::string> texts;
  for (const Host& host : hosts) texts.push_back(Str(host.name, ":", Join(host.slots, ",")));
  return Join(texts, " ");
}

TEST(ParseHostsTest, HostsWithSlotsAndComments) {
  EXPECT_EQ(
      Show(ParseHosts("# the cluster\nhost1 slots=2\n\n  host-2.net\tslots=1  # slow\r\n", "F")),
      "host1:0,1 host-2.net:0");
}

TEST(ParseHostsTest, SpeedAndMemoryOfTheRanks) {
  const auto hosts = ParseHosts("a slots=2\n b slots=3 memory=24GiB\tspeed=0.5 # slow\r\n", "F");
  EXPECT_EQ(hosts[0].says, RankRule());
  EXPECT_EQ(hosts[1].says, (RankRule{.speed = 0.5, .memory = int64_t{24} << 30}));
  const std::vector<Host> picked = {Include(hosts, "b:1")[0], Exclude(hosts, "b:0,2")[1]};
  for (const RankHost& host : RankHosts(picked)) {
    EXPECT_EQ(host.name, "b");
    EXPECT_EQ(host.ranks, 1);
    EXPECT_EQ(host.says, hosts[1].says);
    EXPECT_EQ(host.where, "F:2");
  }
  const auto error = [](const std::string& text) {
    return ConfigErrorOf([&] { ParseHosts(text, "F"); });
  };
  EXPECT_EQ(error("a slots=1 sped=1"),
            "F:1: ranks: expected speed=NUMBER or memory=SIZE, got \"sped=1\"; did you mean "
            "\"speed\"?");
  EXPECT_THAT(error("\na slots=1 speed=0"), StartsWith("F:2: ranks: speed: expected a number"));
  EXPECT_THAT(error("a slots=1 memory=x"), StartsWith("F:1: ranks: memory"));
  EXPECT_THAT(error("a slots=1 speed=measured"), HasSubstr("--ranks=speed=measured"));
}

TEST(ParseHostsTest, Refusals) {
  const auto error = [](const std::string& text) {
    return ConfigErrorOf([&] { ParseHosts(text, "F"); });
  };
  EXPECT_EQ(error("a slots=1\n\na slots=2"), "F:3: host \"a\" is there already, in line 1");
  EXPECT_EQ(error("# none\n"), "F: there is no host in it");
  for (const char* line : {"a", "a slots=0", "a slots=-1", "a slots=x", "a slots=4097", "a slots",
                           "a slots= 1", "slots=1", "a 1"}) {
    EXPECT_THAT(error(line), StartsWith("F:1: expected HOST slots=N")) << line;
  }
  for (const char* name : {"-oProxyCommand=x", "a;b", "$(x)", "me@a", "a/b", "a`b"}) {
    EXPECT_THAT(error(Str(name, " slots=1")), HasSubstr("is no host's name")) << name;
  }
}

const std::vector<Host> kHosts = {{"a", {0, 1, 2}}, {"b", {0, 1}}, {"c", {0}}};

TEST(IncludeTest, HostsAndSlots) {
  EXPECT_EQ(Show(Include(kHosts, "b@a:2,0")), "a:0,2 b:0,1");
  EXPECT_EQ(Show(Include(kHosts, "c")), "c:0");
}

TEST(ExcludeTest, HostsAndSlots) {
  EXPECT_EQ(Show(Exclude(kHosts, "a:1@c")), "a:0,2 b:0,1");
  EXPECT_EQ(Show(Exclude(kHosts, "b:0,1")), "a:0,1,2 c:0");
}

TEST(IncludeTest, Refusals) {
  const auto error = [](const std::string& spec) {
    return ConfigErrorOf([&] { Include(kHosts, spec); });
  };
  EXPECT_EQ(error("b:2"), "--include=b:2: \"b\" has no slot \"2\"; it has 0,1");
  EXPECT_THAT(error("x"), StartsWith("--include=x: there is no host \"x\"; it is one of a, b, c"));
  EXPECT_THAT(error(""), HasSubstr("there is no host \"\""));
  EXPECT_THAT(error("a@a"), HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(error("a:1,1"), HasSubstr("slot 1 of a is given twice"));
  EXPECT_THAT(error("a:"), HasSubstr("has no slot \"\""));
  EXPECT_THAT(ConfigErrorOf([] { Exclude(kHosts, "a@b@c"); }), HasSubstr("no slot is left"));
}

TEST(FirstTest, TakesTheFirst) {
  EXPECT_EQ(Show(First(kHosts, 2, 1)), "a:0 b:0");
  EXPECT_EQ(Show(First(kHosts, 0, 0)), Show(kHosts));
  EXPECT_EQ(ConfigErrorOf([] { First(kHosts, 4, 0); }), "expected 4 hosts, there are 3");
  EXPECT_EQ(ConfigErrorOf([] { First(kHosts, 0, 2); }),
            "expected 2 slots on each host, \"c\" has 1");
}

struct Text {
  const char* text;
  const char* result;  // hosts, or the error
};

TEST(ParseHostsTest, InATable) {
  const Text cases[] = {
      {"a slots=1", "a:0"},
      {"a slots=1\n", "a:0"},
      {"a\tslots=2\r\nb slots=1\r\n", "a:0,1 b:0"},
      {"\n\n# a slots=1\nb slots=01#x\n", "b:0"},
      {"10.0.0.1 slots=1\nfe80::1 slots=2", "10.0.0.1:0 fe80::1:0,1"},
      {"A slots=1\na slots=1", "A:0 a:0"},
      {"z slots=1\na slots=1", "z:0 a:0"},
      {"node-1_x.net slots=3", "node-1_x.net:0,1,2"},
      {"", "F: there is no host in it"},
      {"\r\n \t\n", "F: there is no host in it"},
      {"# a slots=1", "F: there is no host in it"},
      {"a slots=1\nb slots=+1", "F:2: expected HOST slots=N, N from 1 to 4096, got \"b slots=+1\""},
      {"\n\n  a  # slots=1\n", "F:3: expected HOST slots=N, N from 1 to 4096, got \"a\""},
      {"a slots=1.0", "F:1: expected HOST slots=N, N from 1 to 4096, got \"a slots=1.0\""},
      {"a slots=99999999999",
       "F:1: expected HOST slots=N, N from 1 to 4096, got \"a slots=99999999999\""},
      {"a SLOTS=1", "F:1: expected HOST slots=N, N from 1 to 4096, got \"a SLOTS=1\""},
      {"a slots=2\nb slots=1\n# b\nb slots=1", "F:4: host \"b\" is there already, in line 2"},
      {"a slots=1\n\n-b slots=1",
       "F:3: \"-b\" is no host's name: expected letters, digits, and . _ - : without - in front "
       "(for a user's name use ssh's configuration)"},
  };
  for (const auto& [text, result] : cases) {
    std::string shown;
    const std::string error =
        ConfigErrorOf([&, &text = text] { shown = Show(ParseHosts(text, "F")); });
    EXPECT_EQ(error == "no error" ? shown : error, result) << text;
  }
}

TEST(ParseHostsTest, EverySizeThatIsAllowed) {
  for (int slots : {1, 2, 8, 4095, 4096}) {
    const auto hosts = ParseHosts(Str("a slots=", slots), "F");
    ASSERT_EQ(hosts[0].slots.size(), static_cast<size_t>(slots));
    EXPECT_EQ(hosts[0].slots.back(), slots - 1);
  }
}

// The included slots, and those left when the same spec is excluded, are together all slots.
TEST(IncludeTest, ExcludeIsTheRest) {
  const Text cases[] = {
      {"a", "b:0,1 c:0"},         {"a:0", "a:1,2 b:0,1 c:0"}, {"c@a:2,1", "a:0 b:0,1"},
      {"b:1@a:0,1,2", "b:0 c:0"}, {"b@c", "a:0,1,2"},         {"a:1@b:0", "a:0,2 b:1 c:0"},
  };
  for (const auto& [spec, rest] : cases) {
    EXPECT_EQ(Show(Exclude(kHosts, spec)), rest) << spec;
    size_t slots = 0;
    for (const auto& hosts : {Include(kHosts, spec), Exclude(kHosts, spec)}) {
      for (const Host& host : hosts) slots += host.slots.size();
    }
    EXPECT_EQ(slots, 6u) << spec;
  }
}

TEST(IncludeTest, RefusalsNameTheFlagAndTheSpec) {
  const Text cases[] = {
      {"a:-1", "\"a\" has no slot \"-1\"; it has 0,1,2"},
      {"a:0,", "\"a\" has no slot \"\"; it has 0,1,2"},
      {"a:0, 1", "\"a\" has no slot \" 1\"; it has 0,1,2"},
      {"a:99999999999", "\"a\" has no slot \"99999999999\"; it has 0,1,2"},
      {"c:0-1", "\"c\" has no slot \"0-1\"; it has 0"},
      {"a@", "there is no host \"\"; it is one of a, b, c"},
      {"@", "there is no host \"\"; it is one of a, b, c"},
      {"a,b", "there is no host \"a,b\"; it is one of a, b, c"},
      {"a:0@b@a:1", "host \"a\" is given twice"},
      {"a:2,0,2", "slot 2 of a is given twice"},
  };
  for (const auto& [spec, error] : cases) {
    EXPECT_EQ(ConfigErrorOf([&, &spec = spec] { Include(kHosts, spec); }),
              Str("--include=", spec, ": ", error));
    EXPECT_EQ(ConfigErrorOf([&, &spec = spec] { Exclude(kHosts, spec); }),
              Str("--exclude=", spec, ": ", error));
  }
}

// IPv6 addresses contain colons. The last colon begins the slots, unless the whole text is a host.
TEST(IncludeTest, NamesMayHoldColons) {
  const std::vector<Host> hosts = {{"fe80::1", {0, 1}}, {"fe80::1:0", {0}}, {"::1", {0, 1}}};
  const Text cases[] = {
      {"fe80::1", "fe80::1:0,1"},
      {"fe80::1:1", "fe80::1:1"},
      {"fe80::1:0", "fe80::1:0:0"},
      {"::1:1@fe80::1", "fe80::1:0,1 ::1:1"},
  };
  for (const auto& [spec, included] : cases) EXPECT_EQ(Show(Include(hosts, spec)), included);
  EXPECT_THAT(ConfigErrorOf([&] { Include(hosts, "fe80::2:0"); }),
              HasSubstr("there is no host \"fe80::2\""));
}

}  // namespace
}  // namespace strata::launcher
