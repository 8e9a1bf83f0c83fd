#include "engine/runtime/measure_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <utility>

#include "engine/comm/testing.h"
#include "engine/comm/transports/gloo.h"
#include "engine/comm/transports/thread_transport.h"

namespace strata {
namespace {

TEST(PartnerOf, EachPairMeetsOnceAndEachRankHasOnePartner) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    const int rounds = ranks % 2 == 0 ? ranks - 1 : ranks;
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < rounds; ++round) {
      int alone = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int partner = PartnerOf(rank, round, ranks);
        ASSERT_EQ(PartnerOf(partner, round, ranks), rank) << ranks << " ranks, round " << round;
        alone += partner == rank;
        if (rank < partner) {
          EXPECT_TRUE(met.emplace(rank, partner).second) << ranks << " ranks";
        }
      }
      EXPECT_EQ(alone, ranks % 2) << ranks << " ranks, round " << round;
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(ranks * (ranks - 1) / 2));
  }
}

void ExpectWhole(const LinkTable& table, int ranks) {
  ASSERT_EQ(table.ranks(), ranks);
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      EXPECT_GT(table.Of(a, b).latency, 0) << a << " and " << b;
      EXPECT_GT(table.Of(a, b).bandwidth, 0) << a << " and " << b;
    }
  }
}

TEST(MeasureLinks, AllRanksGetOneTable) {
  constexpr int kRanks = 3;
  auto transports = MakeThreadTransports(kRanks, LinksBetweenAll(kRanks));
  std::vector<std::string> tables(kRanks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::string host = rank == 0 ? "a" : "b";
        const LinkTable table = MeasureLinks(*transports[rank], host, at::kCPU, 0.01);
        tables[rank] = ToValue(table).ToJson();
      });
    }
  }
  EXPECT_EQ(tables[1], tables[0]);
  EXPECT_EQ(tables[2], tables[0]);
  const Value table = Value::FromJson(tables[0]);
  EXPECT_EQ(table["hosts"], Value(Value::List{"a", "b", "b"}));
  EXPECT_EQ(table["pairs"].as_list().size(), 3u);
}

// Between processes, small messages go over wires and large ones through Gloo.
TEST(MeasureLinks, BetweenProcesses) {
  constexpr int kRanks = 2;
  const std::vector<int> statuses = testing::RunProcesses(kRanks, [](const RankPlace& place) {
    const auto transport = MakeGlooTransport(place, LinksBetweenAll(kRanks), {}, 60);
    const LinkTable table = MeasureLinks(*transport, "here", at::kCPU, 0.05);
    ExpectWhole(table, kRanks);
    testing::Require(!::testing::Test::HasFailure(), "a link between both ranks");
    testing::Require(table.transport() == "gloo", "the transport's name");
    transport->Barrier();
  });
  EXPECT_THAT(statuses, ::testing::Each(0));
}

}  // namespace
}  // namespace strata
