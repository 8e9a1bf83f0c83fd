#include "engine/comm/transports/wires.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/peer_error.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A board for ranks that are threads of this test.
class Texts {
 public:
  Board board() {
    return {.set = [this](const std::string& key, const std::string& text) { Set(key, text); },
            .get = [this](const std::string& key) { return Get(key); }};
  }
  void Set(const std::string& key, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[key] = text;
    changed_.notify_all();
  }
  std::string Get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return texts_.contains(key); });
    return texts_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
};

RankPlace Place(int rank, int world_size) {
  RankPlace place;
  place.rank = rank;
  place.world_size = place.local_world_size = world_size;
  return place;
}

const Patience kNoPatience(std::chrono::nanoseconds(0));

std::unique_ptr<Wires> Connect(Texts& texts, int rank, int world_size,
                               const std::set<WireKey>& wanted, double timeout = 60) {
  return Wires::Connect(Place(rank, world_size), wanted, texts.board(), kNoPatience, timeout);
}

using WiresOfRanks = std::vector<std::unique_ptr<Wires>>;

/// Connects all ranks; wanted[r] are the wires of rank r.
WiresOfRanks ConnectAll(const std::vector<std::set<WireKey>>& wanted) {
  Texts texts;
  const int count = static_cast<int>(wanted.size());
  std::vector<std::future<std::unique_ptr<Wires>>> coming;
  for (int rank = 0; rank < count; ++rank) {
    coming.push_back(std::async(std::launch::async, [&texts, &wanted, rank, count] {
      return Connect(texts, rank, count, wanted[rank]);
    }));
  }
  WiresOfRanks wires;
  for (auto& one : coming) wires.push_back(one.get());
  return wires;
}

WiresOfRanks Pair() { return ConnectAll({{{1, 0}}, {{0, 0}}}); }

void Send(Wire& wire, const std::string& text) { wire.Send(text.data(), text.size()); }

std::string Receive(Wire& wire, size_t size) {
  std::string text(size, '?');
  wire.Receive(text.data(), text.size());
  return text;
}

/// A connection to where rank 0 listens.
int Visit(Texts& texts) {
  const std::vector<std::string> there = Split(texts.Get("wires/0"), ' ');
  EXPECT_EQ(there.at(1), "127.0.0.1");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(there.at(0))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

/// Waits until the other side sends something or closes the connection; true when it closed it.
bool IsClosed(int fd) {
  char byte = 0;
  return ::recv(fd, &byte, 1, 0) <= 0;
}

TEST(WiresTest, AMessageTellsOfItsAppendix) {
  const auto wires = Pair();
  Wire &there = *wires[0]->Find(1, 0), &here = *wires[1]->Find(0, 0);
  there.Send("ab", 2, /*has_appendix=*/true);
  Send(there, "c");
  there.Send(nullptr, 0, /*has_appendix=*/true);
  Send(there, "d");
  char bytes[2];
  EXPECT_TRUE(here.Receive(bytes, 2));
  EXPECT_FALSE(here.Receive(bytes, 1));
  EXPECT_TRUE(here.Receive(nullptr, 0));
  EXPECT_EQ(Receive(here, 1), "d");
}

TEST(WiresTest, MessagesKeepTheirOrderInBothDirectionsOfEachChannel) {
  const auto wires = ConnectAll({{{1, 0}, {1, 1}, {2, 0}}, {{0, 0}, {0, 1}}, {{0, 0}}});
  EXPECT_EQ(wires[1]->Find(2, 0), nullptr);
  EXPECT_EQ(wires[2]->Find(0, 1), nullptr);
  for (const char* text : {"a", "bc", "def"}) Send(*wires[0]->Find(1, 0), text);
  Send(*wires[0]->Find(1, 1), "other channel");
  Send(*wires[0]->Find(2, 0), "other rank");
  Send(*wires[1]->Find(0, 0), "back");
  EXPECT_EQ(Receive(*wires[1]->Find(0, 1), 13), "other channel");
  EXPECT_EQ(Receive(*wires[2]->Find(0, 0), 10), "other rank");
  EXPECT_EQ(Receive(*wires[1]->Find(0, 0), 1), "a");
  EXPECT_EQ(Receive(*wires[1]->Find(0, 0), 2), "bc");
  EXPECT_EQ(Receive(*wires[1]->Find(0, 0), 3), "def");
  EXPECT_EQ(Receive(*wires[0]->Find(1, 0), 4), "back");
}

TEST(WiresTest, ASendNeverWaits) {
  const auto wires = Pair();
  Wire& sender = *wires[0]->Find(1, 0);
  Wire& receiver = *wires[1]->Find(0, 0);
  constexpr int kMessages = 1000;
  constexpr size_t kSize = 100'000;  // 100 MB: more than any kernel keeps
  for (int i = 0; i < kMessages; ++i) Send(sender, std::string(kSize, static_cast<char>(i % 100)));
  Send(receiver, "and back");
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(Receive(receiver, kSize), std::string(kSize, static_cast<char>(i % 100))) << i;
  }
  EXPECT_EQ(Receive(sender, 8), "and back");
  Send(sender, "after all");
  EXPECT_EQ(Receive(receiver, 9), "after all");
}

TEST(WiresTest, AMessageOfAnotherSizeIsAnError) {
  for (const size_t expected : {2, 4, 1000}) {
    const auto wires = Pair();
    Send(*wires[0]->Find(1, 0), "abc");
    EXPECT_EQ(ErrorOf([&] { Receive(*wires[1]->Find(0, 0), expected); }),
              Str("rank 0 sent 3 bytes where rank 1 expected ", expected));
  }
}

TEST(WiresTest, AbortEndsAWaitAndAllThatComesAfter) {
  for (const Patience patience : {kNoPatience, Patience(std::chrono::hours(1))}) {
    Texts texts;
    auto other = std::async(std::launch::async, [&] { return Connect(texts, 1, 2, {{0, 0}}); });
    const auto wires = Wires::Connect(Place(0, 2), {{1, 0}}, texts.board(), patience, 60);
    const auto keep = other.get();
    Wire& wire = *wires->Find(1, 0);
    std::thread watchdog([&] { wires->Abort("the watchdog spoke"); });
    EXPECT_EQ(ErrorOf([&] { Receive(wire, 1); }), "the watchdog spoke");
    watchdog.join();
    wires->Abort("too late");
    EXPECT_EQ(ErrorOf([&] { Receive(wire, 1); }), "the watchdog spoke");
    EXPECT_EQ(ErrorOf([&] { Send(wire, "x"); }), "the watchdog spoke");
  }
}

TEST(WiresTest, ALostPeerIsNamedOnceWhatItSentWasRead) {
  auto wires = Pair();
  Send(*wires[1]->Find(0, 0), "last words");
  wires[1].reset();
  Wire& wire = *wires[0]->Find(1, 0);
  EXPECT_EQ(Receive(wire, 10), "last words");
  EXPECT_THROW(Receive(wire, 1), PeerError);
  EXPECT_THAT(ErrorOf([&] { Receive(wire, 1); }),
              HasSubstr("rank 0 lost the connection to rank 1: it closed the connection"));
  // The peer is gone. The kernel takes the first messages and then reports the closed connection.
  EXPECT_THAT(ErrorOf([&] {
                while (true) Send(wire, "x");
              }),
              HasSubstr("rank 0 lost the connection to rank 1: "));
}

TEST(WiresTest, StrangersAreSentAwayAndNobodyListensAfterwards) {
  Texts texts;
  auto first = std::async(std::launch::async, [&] { return Connect(texts, 0, 2, {{1, 0}}); });
  const int silent = Visit(texts), wrong = Visit(texts), rude = Visit(texts);
  const std::string token = texts.Get("wires/token");
  ASSERT_EQ(token.size(), 16);
  // Rank 1 with a wrong token, and at once a message; a rank that is not expected, with the token.
  const std::string rank_1("\1\0\0\0\0\0\0\0", 8), header("\5\0\0\0\xff\xff\xff\xff", 8);
  const std::string lie = std::string(16, 'x') + rank_1 + header + "wrong";
  ASSERT_EQ(::send(wrong, lie.data(), lie.size(), 0), lie.size());
  ASSERT_EQ(::send(rude, (token + std::string("\7\0\0\0\0\0\0\0", 8)).data(), 24, 0), 24);
  const auto second = Connect(texts, 1, 2, {{0, 0}});
  const auto wires = first.get();
  Send(*second->Find(0, 0), "hello");
  ASSERT_EQ(Receive(*wires->Find(1, 0), 5), "hello");
  for (const int fd : {silent, wrong, rude}) EXPECT_TRUE(IsClosed(fd));
  const int late = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(Split(texts.Get("wires/0"), ' ')[0])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(late, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const int fd : {silent, wrong, rude, late}) ::close(fd);
}

TEST(WiresTest, WhoDoesNotComeIsNamed) {
  Texts texts;
  EXPECT_THAT(ErrorOf([&] {
                Connect(texts, 0, 3, {{1, 0}, {1, 1}, {2, 0}}, 0.01);
              }),
              AllOf(HasSubstr("rank 0 waits for ranks 1, 2"), HasSubstr("within the timeout")));
  texts.Set("wires/0", "1 127.0.0.1");  // no process listens at port 1
  EXPECT_THAT(ErrorOf([&] {
                Connect(texts, 1, 3, {{0, 0}});
              }),
              HasSubstr("rank 1 cannot connect to rank 0 at 127.0.0.1"));
}

}  // namespace
}  // namespace strata
