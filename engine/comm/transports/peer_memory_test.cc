#include "engine/comm/transports/peer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/comm/peer_error.h"
#include "engine/comm/transports/testing_wires.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr WireKey kToFirst = {0, 5}, kToSecond = {1, 5};

TEST(PeerMemory, IsReadInPlace) {
  std::vector<double> numbers(300'000, 1.5), copy(numbers.size());
  numbers.back() = 2;
  PeerMemory(0, 1, getpid())
      .Read(reinterpret_cast<uint64_t>(numbers.data()), copy.data(), numbers.size() * 8);
  EXPECT_EQ(copy, numbers);
}

TEST(PeerMemory, OfAProcessThatHasEndedCannotBeRead) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  int number = 0;
  const auto read = [&] {
    PeerMemory(3, 7, child).Read(reinterpret_cast<uint64_t>(&number), &number, sizeof(number));
  };
  EXPECT_THROW(read(), PeerError);
  EXPECT_THAT(ErrorOf(read), HasSubstr("rank 3 lost the connection to rank 7: its memory"));
}

TEST(PeerMemory, WhereNothingIsCannotBeRead) {
  int number = 0;
  EXPECT_THAT(ErrorOf([&] { PeerMemory(0, 1, getpid()).Read(16, &number, sizeof(number)); }),
              HasSubstr("Bad address"));
}

TEST(TryReach, FindsPeersOfThisMachine) {
  const auto wires = testing::ConnectAll({{kToSecond}, {kToFirst}});
  auto second =
      std::async(std::launch::async, [&] { return TryReach(1, *wires[1], {kToFirst}, 60); });
  const auto first = TryReach(0, *wires[0], {kToSecond}, 60);
  EXPECT_TRUE(first.at(kToSecond).reads_ours);
  EXPECT_TRUE(second.get().at(kToFirst).reads_ours);
  const int number = 7;
  int copy = 0;
  first.at(kToSecond).theirs->Read(reinterpret_cast<uint64_t>(&number), &copy, sizeof(copy));
  EXPECT_EQ(copy, 7);
}

/// The message in which a peer describes its process, as in peer_memory.cc.
struct Card {
  int64_t pid = 0;
  uint64_t address = 0;
  char number[16] = {};
};

/// The result of rank 0 for a peer that sends this card and then says that it can read rank 0's
/// memory.
Reach ReachOf(const Card& card) {
  const auto wires = testing::ConnectAll({{kToSecond}, {kToFirst}});
  Wire& wire = *wires[1]->Find(0, 5);
  wire.Send(&card, sizeof(card));
  const char can_read = 1;
  wire.Send(&can_read, 1);
  return TryReach(0, *wires[0], {kToSecond}, 60).at(kToSecond);
}

TEST(TryReach, TellsAProcessByItsNumber) {
  const char there[16] = "fifteen letters";
  Card card = {getpid(), reinterpret_cast<uint64_t>(there), "fifteen letters"};
  EXPECT_TRUE(ReachOf(card).theirs.has_value());
  card.number[0] = 'F';
  EXPECT_FALSE(ReachOf(card).theirs.has_value());
  EXPECT_TRUE(ReachOf(card).reads_ours);
  card.address = 16;
  EXPECT_FALSE(ReachOf(card).theirs.has_value());
}

TEST(TryReach, APeerThatSaysNothingEndsTheWait) {
  const auto wires = testing::ConnectAll({{kToSecond}, {kToFirst}});
  EXPECT_THAT(ErrorOf([&] { TryReach(0, *wires[0], {kToSecond}, 0.05); }),
              HasSubstr("it sent nothing for 0.05 s"));
}

}  // namespace
}  // namespace strata
