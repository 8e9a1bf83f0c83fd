#include "engine/comm/meeting/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <future>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"

namespace strata {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kPatience = 60;

/// The places of two ranks of a job on this machine, whose store listens on a new socket.
std::vector<RankPlace> TwoPlaces() {
  std::vector<RankPlace> places(2);
  for (RankPlace& place : places) place.world_size = place.local_world_size = 2;
  places[1].rank = places[1].local_rank = 1;
  const ListeningSocket socket = ListenForRanks(places[0]);
  places[0].store_fd = socket.fd;
  places[0].store_port = places[1].store_port = socket.port;
  return places;
}

/// Calls MeetAtStore() for each place on a thread of its own and returns the error of each, or "no
/// error". All keep their store until all have returned.
std::vector<std::string> Meet(const std::vector<RankPlace>& places, double timeout = kPatience) {
  std::vector<c10::intrusive_ptr<c10d::Store>> stores(places.size());
  std::vector<std::future<std::string>> heard;
  for (size_t i = 0; i < places.size(); ++i) {
    heard.push_back(std::async(std::launch::async, [&, i] {
      return ErrorOf([&] { stores[i] = MeetAtStore(places[i], timeout); });
    }));
  }
  std::vector<std::string> texts;
  for (auto& text : heard) texts.push_back(text.get());
  return texts;
}

TEST(MeetAtStoreTest, AllCome) { EXPECT_THAT(Meet(TwoPlaces()), Each("no error")); }

TEST(MeetAtStoreTest, AtAFile) {
  std::vector<RankPlace> places = TwoPlaces();
  for (RankPlace& place : places) place.store_file = testing::TempDir() + "/store";
  std::remove(places[0].store_file.c_str());
  EXPECT_THAT(Meet(places), Each("no error"));
}

TEST(MeetAtStoreTest, TheKeysAreTheJobs) {
  const std::vector<RankPlace> places = TwoPlaces();
  auto other = std::async(std::launch::async, [&] { return MeetAtStore(places[1], kPatience); });
  const auto store = MeetAtStore(places[0], kPatience);
  store->set("key", std::vector<uint8_t>{7});
  EXPECT_THAT(other.get()->get("key"), ElementsAre(7));
}

std::vector<RankPlace> TwoPlacesWithSecrets(const std::string& first, const std::string& second) {
  std::vector<RankPlace> places = TwoPlaces();
  places[0].secret = first;
  places[1].secret = second;
  return places;
}

TEST(MeetAtStoreTest, WithASecretRanksBelieveTheirOwnKeysOnly) {
  const std::vector<RankPlace> places = TwoPlacesWithSecrets("a secret", "a secret");
  auto other = std::async(std::launch::async, [&] { return MeetAtStore(places[1], kPatience); });
  const auto store = MeetAtStore(places[0], kPatience);
  const auto mine = other.get();
  store->set("key", std::vector<uint8_t>{7});
  EXPECT_THAT(mine->get("key"), ElementsAre(7));
  const std::vector<uint8_t> seven = {7}, eight = {8};
  EXPECT_THAT(mine->compareSet("key", seven, eight), ElementsAre(8));
  // Anybody who reaches the port can set keys.
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(places[0].store_port);
  c10d::TCPStore stranger("127.0.0.1", options);
  const std::string name = "strata//key";
  const std::vector<uint8_t> sealed = stranger.get(name);
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::vector<uint8_t> forged = sealed;
    forged[i] ^= 1;
    stranger.set(name, forged);
    EXPECT_THAT(ErrorOf([&] { store->get("key"); }), HasSubstr("was not written by this job")) << i;
  }
  for (const auto& forged : {std::vector<uint8_t>{}, eight}) {
    stranger.set(name, forged);
    EXPECT_THAT(ErrorOf([&] { store->get("key"); }), HasSubstr("was not written by this job"));
  }
  stranger.set("strata//other", sealed);  // a valid value, but of another key
  EXPECT_THAT(ErrorOf([&] { store->get("other"); }), HasSubstr("was not written by this job"));
  stranger.set(name, sealed);
  EXPECT_THAT(store->get("key"), ElementsAre(8));
}

// They fail at once, and the errors do not show the bytes of a seal.
TEST(MeetAtStoreTest, RanksWithoutTheSameSecretDoNotMeet) {
  for (const auto& [first, second] :
       {std::pair("a secret", "another"), std::pair("a secret", ""), std::pair("", "a secret")}) {
    const std::vector<std::string> texts = Meet(TwoPlacesWithSecrets(first, second));
    EXPECT_THAT(texts, Contains(HasSubstr("STRATA_SECRET"))) << first << ", " << second;
    EXPECT_THAT(texts, Each(AnyOf(HasSubstr("STRATA_SECRET"), HasSubstr("cannot use the store"))));
    for (const std::string& text : texts) {
      EXPECT_TRUE(std::ranges::all_of(text, [](unsigned char c) { return std::isprint(c) != 0; }))
          << text;
    }
  }
}

/// Checks that at least one place gets the error `why` and that none keeps waiting. A rank may get
/// a PeerError instead when the store ends with rank 0.
void ExpectRefused(const std::vector<RankPlace>& places, const std::string& why) {
  const std::vector<std::string> texts = Meet(places);
  EXPECT_THAT(texts, Contains(HasSubstr(why)));
  EXPECT_THAT(texts, Each(AnyOf(HasSubstr(why), HasSubstr("cannot use the store"))));
}

TEST(MeetAtStoreTest, ARankThatComesTwice) {
  std::vector<RankPlace> places = TwoPlaces();
  places.push_back(places[1]);
  for (RankPlace& place : places) place.world_size = place.local_world_size = 3;
  ExpectRefused(places, "rank 1 is there twice: on ");
}

TEST(MeetAtStoreTest, RanksThatDifferOnTheirNumber) {
  std::vector<RankPlace> places = TwoPlaces();
  places[1].world_size = places[1].local_world_size = 3;
  ExpectRefused(places, "the ranks differ on their number: ");
}

TEST(MeetAtStoreTest, TheMissingAreNamed) {
  std::vector<RankPlace> places = TwoPlaces();
  places[0].world_size = places[0].local_world_size = 3;
  places.resize(1);
  testing::internal::CaptureStderr();
  EXPECT_THAT(Meet(places, 0.2), ElementsAre(HasSubstr("for ranks 1, 2, which did not come")));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "no back-trace of c10d's";
}

TEST(MeetAtStoreTest, AStoreThatListensEverywhereSaysSo) {
  RankPlace place;
  place.world_size = 2;
  place.local_world_size = 1;
  place.store_host = "some.other.host.invalid";
  testing::internal::CaptureStderr();
  EXPECT_THAT(Meet({place}, 0.2), ElementsAre(HasSubstr("for rank 1, which did not come")));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("some.other.host.invalid is no address of this machine that others reach: "
                        "rank 0 listens on all addresses, port "));
}

TEST(MeetAtStoreTest, NobodyServesTheStore) {
  std::vector<RankPlace> places = TwoPlaces();
  ::close(places[0].store_fd);
  testing::internal::CaptureStderr();
  EXPECT_THAT(Meet({places[1]}, 0.5),
              ElementsAre(Str("rank 1 cannot use the store at 127.0.0.1:", places[0].store_port,
                              ": it did not open within 500 ms")));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "no back-trace of c10d's";
}

}  // namespace
}  // namespace strata
