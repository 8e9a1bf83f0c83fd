#include "engine/comm/meeting/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "engine/base/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string AddressOf(const ListeningSocket& socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ::getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_EQ(ntohs(address.sin_port), socket.port);
  return ::inet_ntoa(address.sin_addr);
}

RankPlace Place(const std::string& host, bool is_local) {
  RankPlace place;
  place.world_size = 2;
  place.local_world_size = is_local ? 2 : 1;
  place.store_host = host;
  return place;
}

TEST(ListenForRanksTest, ALocalJobListensOnLoopbackAlone) {
  for (const char* host : {"127.0.0.1", "localhost", "some.other.host.invalid"}) {
    const ListeningSocket socket = ListenForRanks(Place(host, true));
    EXPECT_EQ(AddressOf(socket), "127.0.0.1");
    EXPECT_FALSE(socket.everywhere);
    EXPECT_GT(socket.port, 0);
    ::close(socket.fd);
  }
}

/// True if this machine has IPv6.
bool HasSix() {
  const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has_six = ::bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  ::close(probe);
  return has_six;
}

TEST(ListenForRanksTest, WhereTheOthersCannotComeOtherwiseItListensEverywhere) {
  // A loopback name, an address of no machine (TEST-NET-1), and an unknown name.
  for (const char* host : {"localhost", "192.0.2.1", "some.other.host.invalid"}) {
    const ListeningSocket socket = ListenForRanks(Place(host, false));
    EXPECT_TRUE(socket.everywhere) << host;
    EXPECT_GT(socket.port, 0);
    ::close(socket.fd);
  }
}

bool Reaches(const sockaddr& address, socklen_t size) {
  const int fd = ::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool reaches = ::connect(fd, &address, size) == 0;
  ::close(fd);
  return reaches;
}

/// Once, a job with `--master_addr=::1` waited in vain, because rank 0 listened to IPv4 only.
TEST(ListenForRanksTest, EverywhereIsBothFamilies) {
  const ListeningSocket socket = ListenForRanks(Place("localhost", false));
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(socket.port));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_TRUE(Reaches(reinterpret_cast<sockaddr&>(four), sizeof(four)));
  if (HasSix()) {
    sockaddr_in6 six = {};
    six.sin6_family = AF_INET6;
    six.sin6_port = four.sin_port;
    six.sin6_addr = in6addr_loopback;
    EXPECT_TRUE(Reaches(reinterpret_cast<sockaddr&>(six), sizeof(six)));
  }
  ::close(socket.fd);
}

TEST(ListenForRanksTest, ATakenPortIsNamed) {
  RankPlace place = Place("127.0.0.1", true);
  const ListeningSocket first = ListenForRanks(place);
  place.store_port = first.port;
  EXPECT_THAT(ErrorOf([&] { ListenForRanks(place); }),
              AllOf(HasSubstr(std::to_string(first.port)), HasSubstr("Address already in use"),
                    HasSubstr("--master_port")));
  ::close(first.fd);
}

/// Sets an environment variable while an object lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(OwnAddressTest, ALocalJobsIsLoopback) {
  EXPECT_EQ(OwnAddress(Place("some.other.host.invalid", true)), "127.0.0.1");
}

// The host leads to 127.0.1.1, to which Debian's /etc/hosts maps the machine's own name. It is
// written as a number, so that the test needs no such file.
TEST(OwnAddressTest, ANameOfLoopbackIsAdvertisedToNobody) {
  const char* host = "2130706689";
  EXPECT_EQ(AddressTowards(host, 29500), "");
  std::string address;
  const std::string error = ErrorOf([&] { address = OwnAddress(Place(host, false)); });
  if (address.empty()) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("no address that the others reach"), HasSubstr("--master_addr")));
  } else {
    EXPECT_THAT(address, AllOf(Not(StartsWith("127.")), Not("::1"), Not(StartsWith("fe80"))));
  }
}

TEST(OwnAddressTest, AnInterfaceThatIsNotThereIsNamed) {
  const Variable variable("GLOO_SOCKET_IFNAME", "none7");
  EXPECT_THAT(ErrorOf([] { OwnAddress(Place("localhost", false)); }),
              HasSubstr("GLOO_SOCKET_IFNAME names none7"));
}

TEST(AddressTest, SixIsAsGoodAsFour) {
  if (!HasSix()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_EQ(AddressTowards("::1", 29500), "::1");
  const ListeningSocket socket = ListenAtAddress("::1");
  EXPECT_GT(socket.port, 0);
  ::close(socket.fd);
}

TEST(AddressTowardsTest, IsThatOfTheRoute) {
  EXPECT_EQ(AddressTowards("127.0.0.1", 29500), "127.0.0.1");
  EXPECT_EQ(AddressTowards("some.other.host.invalid", 29500), "");
}

}  // namespace
}  // namespace strata
