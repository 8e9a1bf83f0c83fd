#include "engine/comm/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/comm/link_group.h"
#include "engine/comm/logged_links.h"
#include "engine/comm/testing.h"
#include "engine/comm/transports/thread_transport.h"

namespace strata {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Collective::Kind;

/// Runs `body` for every rank on its own thread. A rank that throws fails the test and aborts the
/// others, which may be waiting for it.
void OnRanks(int world_size, const std::vector<GroupSpec>& groups,
             const std::function<void(Transport&)>& body) {
  const auto ends = MakeThreadTransports(world_size, {}, groups);
  std::vector<std::future<void>> ranks;
  for (const auto& end : ends) {
    ranks.push_back(std::async(std::launch::async, [&ends, &body, &end] {
      try {
        body(*end);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        for (const auto& other : ends) other->Abort("another rank failed");
      }
    }));
  }
}

class GroupSizeTest : public ::testing::TestWithParam<int> {};

TEST_P(GroupSizeTest, EveryCollectiveGivesTheBitsOfAscendingOrder) {
  GroupSpec all = {"data", {}};
  for (int rank = 0; rank < GetParam(); ++rank) all.ranks.push_back(rank);
  OnRanks(GetParam(), {all},
          [](Transport& end) { testing::CheckGroup(*end.FindGroup("data"), /*rounds=*/30); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupSizeTest, ::testing::Values(1, 2, 3, 4, 7));

TEST(GroupTest, GroupsOfARankDoNotMeet) {
  const std::vector<GroupSpec> groups = {
      {"data", {0, 1}}, {"data", {2, 3}}, {"model", {2, 0}}, {"model", {1, 3}}};
  OnRanks(4, groups, [](Transport& end) {
    Group& data = *end.FindGroup("data");
    Group& model = *end.FindGroup("model");
    EXPECT_EQ(data.place(), end.rank() % 2);
    EXPECT_EQ(model.spec().ranks[model.place()], end.rank());
    const at::Tensor sum = at::full({50000}, end.rank(), at::kFloat);
    const auto pending =
        data.Start({.kind = Kind::kAllReduce, .input = sum, .output = sum, .bounds = {}});
    testing::CheckGroup(model);  // while the call in the other group is under way
    pending->Wait();
    EXPECT_EQ(sum[7].item<int>(), end.rank() < 2 ? 1 : 5);
  });
}

TEST(GroupTest, AnEndSaysWhomItWaitsForAndIsAborted) {
  const auto ends = MakeThreadTransports(2, {}, {{"data", {0, 1}}});
  Group& group = *ends[0]->FindGroup("data");
  EXPECT_EQ(group.awaited(), -1);
  const at::Tensor sum = at::zeros({9});
  const auto pending =
      group.Start({.kind = Kind::kAllReduce, .input = sum, .output = sum, .bounds = {}});
  while (group.awaited() != 1) std::this_thread::yield();
  EXPECT_FALSE(pending->Wait(0));
  // The clock cannot hold so many seconds, which therefore mean a wait without an end.
  std::vector<std::future<bool>> patient;
  for (const double seconds : {1e10, 1e300}) {
    patient.push_back(
        std::async(std::launch::async, [&, seconds] { return pending->Wait(seconds); }));
  }
  EXPECT_FALSE(pending->done());
  ends[0]->Abort("rank 1 is gone");
  EXPECT_THROW(pending->Wait(), WorldError);
  for (std::future<bool>& wait : patient) EXPECT_THROW(wait.get(), WorldError);
  EXPECT_TRUE(pending->done());
  EXPECT_THROW(group.Barrier(), WorldError);
}

TEST(GroupTest, ATransportMayBeClosedWhileSomethingWaits) {
  auto ends = MakeThreadTransports(2, {}, {{"data", {0, 1}}});
  const at::Tensor sum = at::zeros({9});
  const auto pending = ends[0]->FindGroup("data")->Start(
      {.kind = Kind::kAllReduce, .input = sum, .output = sum, .bounds = {}});
  ends[0] = nullptr;
  EXPECT_THROW(pending->Wait(), WorldError);
}

/// A rank's end that calls `before` and `behind` around every wait for a message. Its collectives
/// of control data do nothing.
class WatchedEnd : public Transport {
 public:
  WatchedEnd(Transport& end, std::function<void()> before, std::function<void()> behind)
      : end_(end), before_(std::move(before)), behind_(std::move(behind)) {}
  int rank() const override { return end_.rank(); }
  int world_size() const override { return end_.world_size(); }
  const char* name() const override { return end_.name(); }
  SendLink& send_link(int peer, int channel) override { return end_.send_link(peer, channel); }
  RecvLink& recv_link(int peer, int channel) override {
    links_.push_back(std::make_unique<Link>(*this, end_.recv_link(peer, channel)));
    return *links_.back();
  }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override { return values; }
  std::string Broadcast(const std::string& text, int) override { return text; }
  std::vector<std::string> Gather(const std::string& text) override { return {text}; }
  void Barrier() override {}
  void Abort(const std::string& why) override { end_.Abort(why); }

 private:
  struct Link : RecvLink {
    Link(const WatchedEnd& owner, RecvLink& link) : owner(owner), link(link) {}
    void Post(const TensorSpecs& specs) override { link.Post(specs); }
    std::vector<at::Tensor> Wait() override {
      owner.before_();
      auto tensors = link.Wait();
      owner.behind_();
      return tensors;
    }
    const WatchedEnd& owner;
    RecvLink& link;
  };

  Transport& end_;
  const std::function<void()> before_, behind_;
  std::vector<std::unique_ptr<Link>> links_;
};

/// Makes `calls` in a group of `size` ranks. Returns for how many messages each rank has waited.
std::vector<int> WaitsOf(int size, const std::function<void(Group&)>& calls) {
  GroupSpec spec = {"data", {}};
  for (int rank = 0; rank < size; ++rank) spec.ranks.push_back(rank);
  std::vector<int> waits(static_cast<size_t>(size), 0);
  OnRanks(size, {spec}, [&](Transport& end) {
    WatchedEnd counting(
        end, [&] { ++waits[static_cast<size_t>(end.rank())]; }, [] {});
    calls(*OpenLinkGroups(counting, {spec}, SharesMemory::kYes)[0]);
  });
  return waits;
}

// If every rank sent to every other in a group of 64, each would get 63 messages, 4,032 in all.
TEST(GroupTest, SmallTensorsOfLargeGroupsTakeTwoMessagesARank) {
  const auto sum = [](Group& group) { group.AllReduce(at::ones({100})); };
  EXPECT_THAT(WaitsOf(4, sum), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(WaitsOf(7, sum), ElementsAre(6, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(WaitsOf(7, [](Group& group) { group.Barrier(); }), ElementsAre(6, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(WaitsOf(7, [](Group& group) { group.AllReduce(at::ones({100'000})); }),
              ::testing::Each(12));
}

TEST(GroupTest, WiredLinksAreNoMoreThanTheyNeed) {
  GroupSpec large = {"data", {}};
  for (int rank = 0; rank < 64; ++rank) large.ranks.push_back(63 - rank);
  const std::vector<GroupSpec> groups = {large, {"model", {4, 5}}};
  EXPECT_EQ(WiredGroupLinks(groups, 63).size(), 63u);  // the rank at place 0
  EXPECT_THAT(WiredGroupLinks(groups, 7), ElementsAre(LinkSpec{7, 63, 16}));
  EXPECT_THAT(WiredGroupLinks(groups, 4), ElementsAre(LinkSpec{4, 63, 16}, LinkSpec{4, 5, 17}));
  GroupSpec middle = {"data", {large.ranks.begin(), large.ranks.begin() + 16}};
  EXPECT_EQ(WiredGroupLinks({middle}, 50).size(), 15u);
  middle.ranks.push_back(0);
  EXPECT_EQ(WiredGroupLinks({middle}, 50).size(), 1u);
}

/// Runs one collective on two ranks and returns the output of rank 1, which reads rank 0's message
/// as late as possible: when rank 0 has returned and overwritten its input, or when rank 0 waits
/// for its message number `number`.
at::Tensor ReadLate(Kind kind, int64_t inputs, int64_t outputs, int number) {
  const GroupSpec spec = {"data", {0, 1}};
  const auto ends = MakeThreadTransports(2, {}, {spec});
  std::counting_semaphore<> may_read(0);
  bool has_read = false;
  WatchedEnd writer(
      *ends[0], [&] { number-- == 1 ? may_read.release() : void(); }, [] {});
  WatchedEnd reader(
      *ends[1], [] {}, [&] { std::exchange(has_read, true) ? void() : may_read.acquire(); });
  const auto run = [&](WatchedEnd& end, int64_t first) {
    const auto group = std::move(OpenLinkGroups(end, {spec}, SharesMemory::kYes)[0]);
    const at::Tensor input = at::arange(first, first + inputs, at::kFloat);
    const at::Tensor output = kind == Kind::kBroadcast ? input : at::zeros({outputs});
    group->Run({.kind = kind, .input = input, .output = output, .bounds = {}});
    const at::Tensor result = output.clone();
    input.fill_(-1);
    may_read.release();
    return result;
  };
  auto written = std::async(std::launch::async, [&] { return run(writer, 10); });
  return run(reader, 100);
}

// Threads read each other's memory, so a rank must not return before the others have read its
// input.
TEST(GroupTest, NobodyWritesToWhatAnotherThreadStillReads) {
  const auto expect = [](const at::Tensor& result, const std::vector<float>& expected) {
    EXPECT_TRUE(at::equal(result, at::tensor(expected))) << result;
  };
  expect(ReadLate(Kind::kBroadcast, 2, 2, 1), {10, 11});
  expect(ReadLate(Kind::kReduceScatter, 4, 2, 2), {12 + 102, 13 + 103});
  expect(ReadLate(Kind::kAllGather, 2, 4, 2), {10, 11, 100, 101});
  expect(ReadLate(Kind::kAllToAll, 4, 4, 2), {12, 13, 102, 103});
}

TEST(GroupTest, CallsAreCounted) {
  const auto log = std::make_shared<CommLog>();
  OnRanks(2, {{"data", {0, 1}}}, [&](Transport& end) {
    Group& group = *end.FindGroup("data");
    if (end.rank() == 0) group.set_log(log);
    for (int i = 0; i < 3; ++i) group.AllReduce(at::zeros({100}));
    group.AllGather(at::zeros({50}), at::zeros({100}));
    group.Barrier();
  });
  const std::vector<CommRecord> records = log->Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].collective, "all_gather");
  EXPECT_EQ(records[0].bytes, 400);
  EXPECT_EQ(records[1].collective, "all_reduce");
  EXPECT_EQ(records[1].group, "data");
  EXPECT_EQ(records[1].calls, 3);
  EXPECT_GT(records[1].seconds, 0);
  EXPECT_EQ(records[2].collective, "barrier");
}

TEST(CommLogTest, BandwidthsAreNcclTests) {
  CommLog log;
  log.Add("all_reduce", "data", 4, 1000, 1.5);
  log.Add("all_reduce", "data", 4, 1000, 0.5);
  log.Add("broadcast", "data", 4, 1000, 1);
  log.Add("reduce_scatter", "data", 4, 1000, 1);
  const auto records = log.Records();
  EXPECT_DOUBLE_EQ(records[0].algorithm_bandwidth(), 1000);
  EXPECT_DOUBLE_EQ(records[0].bus_bandwidth(), 1500);
  EXPECT_DOUBLE_EQ(records[1].bus_bandwidth(), 1000);
  EXPECT_DOUBLE_EQ(records[2].bus_bandwidth(), 750);
  EXPECT_THAT(CommText(records), HasSubstr("all_reduce      data       4  1000 B      2  2.00 s"));
  log.Clear();
  EXPECT_TRUE(log.Records().empty());
}

TEST(CommLogTest, RanksAreJoined) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 3; ++rank) {
    CommLog log;
    log.Add("all_reduce", "data", 2, 1000, 1 + rank % 2);
    if (rank > 0) log.Add("recv", "pipe", 2, 64, 0.5 * rank);
    texts.push_back(ToJson(log.Records()));
  }
  texts.push_back(ToJson({}));
  const std::vector<CommRecord> records = JoinRecords(texts);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].calls, 3);
  EXPECT_DOUBLE_EQ(records[0].seconds, 4);
  EXPECT_EQ(records[0].slowest, 1);
  EXPECT_EQ(records[0].slowest_seconds, 2);
  EXPECT_DOUBLE_EQ(records[0].algorithm_bandwidth(), 750);
  EXPECT_EQ(records[1].calls, 2);
  EXPECT_EQ(records[1].slowest, 2);
  const std::string text = CommText(records);
  EXPECT_THAT(text, ContainsRegex("all_reduce +data +2 +1000 B +3 +4.00 s +rank 1, 2.00 s"));
  EXPECT_THAT(text,
              ContainsRegex("recv +pipe +2 +64 B +2 +1.50 s +rank 2, 1.00 s +85.* B/s +85.* B/s"));
}

TEST(LoggedLinksTest, MessagesAreCountedOnBothEnds) {
  const auto ends = MakeThreadTransports(2, {{0, 1, 0}});
  const auto sent = std::make_shared<CommLog>(), received = std::make_shared<CommLog>();
  LoggedLinks from(*ends[0], "pipe", sent), to(*ends[1], "pipe", received);
  for (const int64_t size : {25, 25, 1}) {
    to.recv_link(0, 0).Post({{{size}, DType::kFloat32}, {{2}, DType::kInt64}});
    from.send_link(1, 0).Send({at::zeros({size}), at::zeros({2}, at::kLong)});
    EXPECT_EQ(to.recv_link(0, 0).Wait()[0].numel(), size);
  }
  from.send_link(1, 0).Flush();
  for (const auto& [log, what] : {std::pair(sent, "send"), std::pair(received, "recv")}) {
    const std::vector<CommRecord> records = log->Records();
    ASSERT_EQ(records.size(), 2u) << what;
    EXPECT_EQ(records[0].bytes, 4 + 16);
    EXPECT_EQ(records[1].bytes, 100 + 16);
    EXPECT_EQ(records[1].calls, 2);
    EXPECT_EQ(records[1].collective, what);
    EXPECT_EQ(records[1].group, "pipe");
    EXPECT_EQ(records[1].ranks, 2);
  }
}

TEST(CheckCollectiveTest, WhatDoesNotFitIsRefused) {
  const auto error = [](Collective collective, int size) {
    return ErrorOf([&] { CheckCollective(collective, size); });
  };
  const at::Tensor four = at::zeros({4}), six = at::zeros({6});
  EXPECT_EQ(error({.kind = Kind::kAllReduce, .input = four, .output = four, .bounds = {}}, 3),
            "no error");
  EXPECT_THAT(error({.kind = Kind::kAllReduce, .input = four, .output = six, .bounds = {}}, 3),
              HasSubstr("all_reduce: expected tensors of one size"));
  EXPECT_THAT(error({.kind = Kind::kAllReduce,
                     .op = ReduceOp::kAvg,
                     .input = at::arange(3),
                     .output = at::arange(3),
                     .bounds = {}},
                    3),
              HasSubstr("floating-point"));
  EXPECT_THAT(error({.kind = Kind::kAllGather, .input = four, .output = six, .bounds = {}}, 2),
              HasSubstr("2 parts of 4 elements, got 6 elements"));
  EXPECT_THAT(error({.kind = Kind::kReduceScatter, .input = six, .output = four, .bounds = {}}, 2),
              HasSubstr("reduce_scatter"));
  EXPECT_THAT(error({.kind = Kind::kAllToAll, .input = four, .output = four, .bounds = {}}, 3),
              HasSubstr("cannot be cut in 3"));
  EXPECT_THAT(
      error({.kind = Kind::kBroadcast, .root = 3, .input = four, .output = four, .bounds = {}}, 3),
      HasSubstr("places 0 to 2, got 3"));
  EXPECT_THAT(
      error({.kind = Kind::kSend, .root = 3, .input = four, .output = four, .bounds = {}}, 3),
      HasSubstr("send: the group has the places 0 to 2, got 3"));
  const at::Tensor turned = at::zeros({2, 3}).t();
  EXPECT_THAT(error({.kind = Kind::kAllReduce, .input = turned, .output = turned, .bounds = {}}, 2),
              HasSubstr("contiguous"));
  EXPECT_THAT(
      error({.kind = Kind::kAllReduce, .input = four, .output = four.to(at::kInt), .bounds = {}},
            2),
      HasSubstr("one dtype and device"));
}

TEST(EvenBoundsTest, PartsAreEqualAndAligned) {
  EXPECT_THAT(EvenBounds(12, 3), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(EvenBounds(13, 3), ElementsAre(0, 5, 10, 13));
  EXPECT_THAT(EvenBounds(100, 3, 16), ElementsAre(0, 48, 96, 100));
  EXPECT_THAT(EvenBounds(5, 3, 16), ElementsAre(0, 5, 5, 5));
  EXPECT_THAT(EvenBounds(0, 2, 16), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace strata
