#include "engine/comm/transports/wires.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/meeting/secret.h"
#include "engine/comm/peer_error.h"
#include "engine/comm/transports/testing_wires.h"

namespace strata {
namespace {

using ::testing::AllOf;
using testing::Connect;
using testing::ConnectAll;
using ::testing::HasSubstr;
using testing::kNoPatience;
using testing::Place;
using testing::Texts;
using testing::WiresOfRanks;

WiresOfRanks Pair() { return ConnectAll({{{1, 0}}, {{0, 0}}}); }

void Send(Wire& wire, const std::string& text) { wire.Send(text.data(), text.size()); }

std::string Receive(Wire& wire, size_t size) {
  std::string text(size, '?');
  wire.Receive(text.data(), text.size());
  return text;
}

/// Connects the socket `fd` to the address at which rank 0 listens.
int Visit(Texts& texts, int fd) {
  const std::vector<std::string> there = Split(texts.Get("wires/0"), ' ');
  EXPECT_EQ(there.at(1), "127.0.0.1");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(there.at(0))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}
int NewSocket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
int Visit(Texts& texts) { return Visit(texts, NewSocket()); }

/// Reads what the other side sends, at most `size` bytes; fewer if it closes the connection.
std::string Read(int fd, size_t size) {
  std::string bytes(size, '?');
  size_t got = 0;
  for (ssize_t more; got < size; got += static_cast<size_t>(more)) {
    more = ::recv(fd, bytes.data() + got, size - got, 0);
    if (more <= 0) break;
  }
  return bytes.substr(0, got);
}

/// Waits until the other side sends something or closes the connection. Returns true if it closed.
bool IsClosed(int fd) { return Read(fd, 1).empty(); }

void SendTo(int fd, const std::string& bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
}

constexpr size_t kNonce = 16, kProof = 32;

/// The Hello of a visitor: random bytes, its rank, and its channel (0).
std::string HelloOf(char rank) { return std::string(kNonce, 'n') + rank + std::string(7, '\0'); }

std::string ProofOf(const std::string& challenge, const std::string& hello) {
  return HmacSha256("the secret of this test", "strata wire visitor 0 " + challenge + hello);
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

TEST(WiresTest, APeerThatSendsNothingIsNamedWhenTheTimeIsOver) {
  auto wires = Pair();
  Send(*wires[1]->Find(0, 0), "a");
  char byte = 0;
  wires[0]->Find(1, 0)->Receive(&byte, 1, 0.2);
  EXPECT_EQ(byte, 'a');
  EXPECT_THROW(wires[0]->Find(1, 0)->Receive(&byte, 1, 0.2), PeerError);
  EXPECT_THAT(ErrorOf([&] { wires[0]->Find(1, 0)->Receive(&byte, 1, 0.2); }),
              HasSubstr("rank 0 lost the connection to rank 1: it sent nothing for 0.2 s"));
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
  const int silent = Visit(texts), wrong = Visit(texts), rude = Visit(texts), old = Visit(texts);
  const std::string rank_1 = HelloOf(1), challenge = Read(old, kNonce);
  ASSERT_EQ(challenge.size(), kNonce);
  // A visitor that says that it is rank 1, sends a wrong proof, and at once a message.
  EXPECT_NE(Read(wrong, kNonce), challenge);
  SendTo(wrong, rank_1 + std::string(kProof, 'x') + "wrong");
  EXPECT_TRUE(IsClosed(wrong));
  // A visitor that knows the secret, but is a rank that is not expected.
  const std::string rank_7 = HelloOf(7);
  SendTo(rude, rank_7 + ProofOf(Read(rude, kNonce), rank_7));
  EXPECT_TRUE(IsClosed(rude));
  // Rank 1's proof for another challenge.
  SendTo(old, rank_1 + ProofOf(std::string(kNonce, 'o'), rank_1));
  EXPECT_TRUE(IsClosed(old));
  const auto second = Connect(texts, 1, 2, {{0, 0}});
  const auto wires = first.get();
  Send(*second->Find(0, 0), "hello");
  ASSERT_EQ(Receive(*wires->Find(1, 0), 5), "hello");
  EXPECT_EQ(Read(silent, 100).size(), kNonce);
  const int late = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(Split(texts.Get("wires/0"), ' ')[0])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(late, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const int fd : {silent, wrong, rude, old, late}) ::close(fd);
}

TEST(WiresTest, WhoKnowsTheSecretIsLetIn) {
  Texts texts;
  auto first = std::async(std::launch::async, [&] { return Connect(texts, 0, 2, {{1, 0}}); });
  const int guest = Visit(texts);
  const std::string hello = HelloOf(1);
  SendTo(guest, hello + ProofOf(Read(guest, kNonce), hello));
  EXPECT_EQ(Read(guest, kProof).size(), kProof);
  first.get();
  ::close(guest);
}

// Otherwise poll() would report the waiting connection again and again.
TEST(WiresTest, WhoHasNoDescriptorForAConnectionSaysSo) {
  Texts texts;
  auto host = std::async(std::launch::async, [&] { return Connect(texts, 0, 2, {{1, 0}}); });
  const int guest = NewSocket();
  texts.Get("wires/0");  // returns once rank 0 listens
  rlimit before = {}, few = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Visit(texts, guest);
  const std::string told = ErrorOf([&] { host.get(); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(told, HasSubstr("rank 0 cannot take a connection (ulimit -n): Too many open files"));
  ::close(guest);
}

// In a large job all ranks connect to rank 0.
TEST(WiresTest, AllWhoAreExpectedMayComeAtOnce) {
  constexpr int kPeers = 100;
  std::set<WireKey> wanted;
  for (int rank = 1; rank <= kPeers; ++rank) wanted.insert({rank, 0});
  Texts texts;
  auto host = std::async(std::launch::async, [&] { return Connect(texts, 0, kPeers + 1, wanted); });
  std::vector<int> guests;
  std::vector<std::string> challenges;
  for (int rank = 1; rank <= kPeers; ++rank) guests.push_back(Visit(texts));
  for (const int guest : guests) challenges.push_back(Read(guest, kNonce));
  for (int rank = 1; rank <= kPeers; ++rank) {
    const std::string hello = HelloOf(static_cast<char>(rank));
    SendTo(guests[rank - 1], hello + ProofOf(challenges[rank - 1], hello));
  }
  for (const int guest : guests) EXPECT_EQ(Read(guest, kProof).size(), kProof);
  host.get();
  for (const int guest : guests) ::close(guest);
}

/// The error of rank 1 when a host sends `answer` in reply to its proof. If `answer` is "", the
/// host sends the visitor's own proof back.
std::string ErrorWithHost(const std::string& answer) {
  RankPlace here = Place(0, 2);
  const ListeningSocket socket = ListenAtAddress(OwnAddress(here));
  Texts texts;
  texts.Set("wires/0", Str(socket.port, " 127.0.0.1"));
  auto host = std::async(std::launch::async, [&] {
    const int fd = ::accept(socket.fd, nullptr, nullptr);
    SendTo(fd, std::string(kNonce, 'c'));
    const std::string heard = Read(fd, HelloOf(1).size() + kProof);
    SendTo(fd, answer.empty() ? heard.substr(heard.size() - kProof) : answer);
    Read(fd, 1);
    ::close(fd);
  });
  const std::string error = ErrorOf([&] { Connect(texts, 1, 2, {{0, 0}}); });
  host.get();
  ::close(socket.fd);
  return error;
}

TEST(WiresTest, AHostThatDoesNotKnowTheSecretIsLeft) {
  for (const std::string& answer : {std::string(kProof, 'x'), std::string()}) {
    EXPECT_THAT(ErrorWithHost(answer), HasSubstr("does not know this job's secret")) << answer;
  }
}

TEST(WiresTest, TwoSecretsDoNotMeet) {
  Texts texts;
  auto first = std::async(std::launch::async, [&] {
    return ErrorOf([&] { Connect(texts, 0, 2, {{1, 0}}, 1); });
  });
  RankPlace stranger = Place(1, 2);
  stranger.secret = "another secret";
  EXPECT_THAT(ErrorOf([&] {
                Wires::Connect(stranger, {{0, 0}}, texts.board(), kNoPatience, 60);
              }),
              HasSubstr("it does not know this job's secret"));
  EXPECT_THAT(first.get(), HasSubstr("rank 0 waits for rank 1"));
}

TEST(WiresTest, WithoutASecretRankZeroMakesOne) {
  Texts texts;
  RankPlace places[] = {Place(0, 2), Place(1, 2)};
  for (RankPlace& place : places) place.secret = "";
  auto first = std::async(std::launch::async, [&] {
    return Wires::Connect(places[0], {{1, 0}}, texts.board(), kNoPatience, 60);
  });
  const auto second = Wires::Connect(places[1], {{0, 0}}, texts.board(), kNoPatience, 60);
  const auto wires = first.get();
  EXPECT_EQ(texts.Get("wires/secret").size(), kSecretBytes);
  Send(*second->Find(0, 0), "hello");
  EXPECT_EQ(Receive(*wires->Find(1, 0), 5), "hello");
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
