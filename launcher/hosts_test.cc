#include "launcher/hosts.h"

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

TEST(ParseHostsTest, Refusals) {
  const auto error = [](const std::string& text) {
    return ConfigErrorOf([&] { ParseHosts(text, "F"); });
  };
  EXPECT_EQ(error("a slots=1\n\na slots=2"), "F:3: host \"a\" is there already, in line 1");
  EXPECT_EQ(error("# none\n"), "F: there is no host in it");
  for (const char* line : {"a", "a slots=0", "a slots=-1", "a slots=x", "a slots=4097", "a slots",
                           "a slots=1 more", "a slots= 1", "slots=1", "a 1"}) {
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

}  // namespace
}  // namespace strata::launcher
