#include "engine/comm/meeting/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(ListenForRanksTest, WhereTheOthersCannotComeOtherwiseItListensEverywhere) {
  // Loopback, no address of this machine (TEST-NET-1), and no name at all.
  for (const char* host : {"localhost", "192.0.2.1", "some.other.host.invalid"}) {
    const ListeningSocket socket = ListenForRanks(Place(host, false));
    EXPECT_TRUE(socket.everywhere) << host;
    EXPECT_GT(socket.port, 0);
    ::close(socket.fd);
  }
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

TEST(AddressTowardsTest, IsThatOfTheRoute) {
  EXPECT_EQ(AddressTowards("127.0.0.1", 29500), "127.0.0.1");
  EXPECT_EQ(AddressTowards("some.other.host.invalid", 29500), "");
}

}  // namespace
}  // namespace strata
