#include "engine/job/rank_abilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

const std::vector<RankHost> kHosts = {
    {.name = "fast1", .ranks = 2, .says = {}, .where = {}},
    {.name = "slow1", .ranks = 2, .says = {.speed = 0.5, .memory = 4 * kGiB}, .where = "hosts:2"}};

std::vector<double> Speeds(const Value& ranks, const std::vector<RankHost>& hosts = {}) {
  std::vector<double> speeds;
  for (const RankAbility& rank : AbilitiesOf(ReadRanks(ranks), hosts, 4, kGiB)) {
    speeds.push_back(rank.speed);
  }
  return speeds;
}

TEST(ReadRanks, TablesAndTextsSayTheSame) {
  const Value table = Value::MakeMap({{"1", "slow*"}, {"speed", 0.5}, {"memory", "24GiB"}});
  const RanksSpec spec = {.rules = {{"slow*", 0.5, 24 * kGiB}, {"2-3", 2, 0}}};
  const Value other = Value::MakeMap({{"1", "2-3"}, {"speed", 2}});
  EXPECT_EQ(ReadRanks(Value::List{table, other}), spec);
  EXPECT_EQ(ReadRanks("slow* speed=0.5 memory=24GiB, 2-3 speed=2"), spec);
  EXPECT_EQ(ReadRanks(table).rules, ReadRanks(Value::List{table}).rules);
  EXPECT_EQ(ReadRanks(Value()), RanksSpec());
  EXPECT_EQ(Build({{"ranks", Value::List{table, other}}}).ranks, spec);
  EXPECT_EQ(ReadRanks(ToValue(spec)), spec);
}

TEST(ReadRanks, MeasuredSpeedsAreForAll) {
  const Value measured = Value::MakeMap({{"speed", "measured"}});
  EXPECT_EQ(ReadRanks(measured), (RanksSpec{.rules = {}, .measured = true}));
  EXPECT_EQ(ReadRanks("speed=measured"), ReadRanks(measured));
  EXPECT_EQ(ReadRanks("speed=measured, 1 memory=1GiB").rules.size(), 1U);
}

TEST(AbilitiesOf, RanksAndPatternsOfHostsAreNamed) {
  EXPECT_THAT(Speeds("2 speed=0.5"), ElementsAre(1, 1, 0.5, 1));
  EXPECT_THAT(Speeds("1-2 speed=0.5, 3 speed=4"), ElementsAre(1, 0.5, 0.5, 4));
  EXPECT_THAT(Speeds("speed=2"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(Speeds("f?st* speed=2", kHosts), ElementsAre(2, 2, 0.5, 0.5));
  EXPECT_THAT(Speeds("slow1 speed=0.5", kHosts), ElementsAre(1, 1, 0.5, 0.5)) << "said twice alike";
  EXPECT_THAT(Speeds("fast1 speed=3", {{.name = "fast1"}}), ElementsAre(3, 3, 3, 3)) << "one host";
  const auto abilities = AbilitiesOf(ReadRanks("0 memory=2GiB"), kHosts, 4, kGiB);
  EXPECT_THAT(abilities, ElementsAre(RankAbility{1, 2 * kGiB}, RankAbility{1, kGiB},
                                     RankAbility{0.5, 4 * kGiB}, RankAbility{0.5, 4 * kGiB}));
}

TEST(AbilitiesOf, RefusesWhatIsWrong) {
  struct Case {
    const char* ranks;
    const char* error;
  };
  const std::vector<Case> cases = {
      {"slow* speed=0", "speed: expected a number above 0"},
      {"1 speed=-1", "speed: expected a number above 0"},
      {"1 speed=fast", "or \"measured\", got the string \"fast\""},
      {"1 memory=24GX", "memory"},
      {"1 memory=0", "memory must be at least a byte"},
      {"1 sped=1", "got \"sped=1\"; did you mean \"speed\"?"},
      {"1", "expected entries such as"},
      {"a/b speed=1", "\"a/b\" is no pattern of host names"},
      {"slow1 speed=measured", "\"measured\" is for all ranks, not for \"slow1\""},
      {"speed=measured, 1 speed=2", "contradict each other"},
      {"4 speed=1", "\"4\": the ranks are 0 to 3"},
      {"3-1 speed=1", "the first before the last"},
      {"sloww1 speed=2", "no host's name fits \"sloww1\"; did you mean \"slow1\"?"},
      {"slow1 speed=2", "rank 2 gets two values of speed, from hosts:2 and from \"slow1\""},
      {"0-1 speed=1, fast1 speed=2", "two values of speed, from \"0-1\" and from \"fast1\""},
      {"slow1 memory=1GiB", "two values of memory"}};
  for (const auto& [ranks, error] : cases) {
    EXPECT_THAT(ErrorOf([&] { AbilitiesOf(ReadRanks(ranks), kHosts, 4, kGiB); }), HasSubstr(error))
        << ranks;
  }
  const auto without = [](const char* ranks) {
    return ErrorOf([&] { AbilitiesOf(ReadRanks(ranks), {}, 4, 0); });
  };
  EXPECT_THAT(without("slow* speed=2"), HasSubstr("which only a --hostfile tells"));
  EXPECT_THAT(without("1 memory=1GiB"), HasSubstr("rank 0 has no limit of memory, but others"));
  EXPECT_THAT(ErrorOf([] { ReadRanks(3); }), HasSubstr("expected entries such as"));
  EXPECT_THAT(ErrorOf([] {
                ReadRanks(Value::MakeMap({{"1", "a"}}));
              }),
              HasSubstr("\"a\" has neither speed nor memory"));
  EXPECT_THAT(ErrorOf([] {
                ReadRanks(Value::MakeMap({{"1", "a"}, {"sped", 1}}));
              }),
              HasSubstr("speed"));
  EXPECT_THAT(ErrorOf([] { Build({{"ranks", "1 speed=0"}}); }), HasSubstr("net.lua:3"));
}

}  // namespace
}  // namespace strata
