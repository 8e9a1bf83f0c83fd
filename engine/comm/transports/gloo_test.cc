#include "engine/comm/transports/gloo.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/peer_error.h"
#include "engine/comm/testing.h"

namespace strata {
namespace {

using testing::ExpectAllWell;
using testing::Require;

std::vector<int> RunRanks(int world_size, const std::function<void(Transport&)>& body) {
  return testing::RunGlooRanks(world_size, {}, body);
}

/// The parameter is a bit mask of the ranks that may not read the memory of others.
class GlooReach : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<int> RunRanks(int world_size, const std::function<void(Transport&)>& body,
                                   const std::vector<GroupSpec>& groups = {}) {
    return testing::RunGlooRanks(world_size, groups, body,
                                 [](int rank) { return (GetParam() >> rank & 1) != 0; });
  }
};
INSTANTIATE_TEST_SUITE_P(Denied, GlooReach, ::testing::Values(0, 1, 2, 7));

TEST_P(GlooReach, LinksKeepTheOrderOfEachChannel) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    constexpr int kMessages = 20;  // more than may be under way at once
    const int peer = 1 - transport.rank();
    const TensorSpecs specs = {{{3, 5}, DType::kFloat32}, {{2}, DType::kInt64}};
    RecvLink& activations = transport.recv_link(peer, 0);
    RecvLink& gradients = transport.recv_link(peer, 1);
    for (int i = 0; i < kMessages; ++i) {
      activations.Post(specs);
      gradients.Post({{{1000}, DType::kFloat64}});
    }
    for (int i = 0; i < kMessages; ++i) {
      transport.send_link(peer, 1).Send({at::full({1000}, i, at::kDouble)});
      transport.send_link(peer, 0).Send(
          {at::full({5, 3}, i, at::kFloat).t(), at::arange(i, i + 2, at::kLong)});
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto message = activations.Wait();
      Require(at::equal(message[0], at::full({3, 5}, i, at::kFloat)), "activations in order");
      Require(at::equal(message[1], at::arange(i, i + 2, at::kLong)), "the second tensor");
      Require(at::equal(gradients.Wait()[0], at::full({1000}, i, at::kDouble)), "gradients");
    }
    transport.send_link(peer, 0).Flush();
    transport.send_link(peer, 1).Flush();
  }));
}

TEST_P(GlooReach, BigMessagesBothWaysAtOnceDoNotBlock) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    const int64_t elements = 8 << 20;
    transport.recv_link(peer, 0).Post({{{elements}, DType::kFloat32}});
    transport.send_link(peer, 0).Send({at::full({elements}, transport.rank(), at::kFloat)});
    const auto message = transport.recv_link(peer, 0).Wait();
    Require(at::equal(message[0], at::full({elements}, peer, at::kFloat)), "the peer's rank");
    transport.send_link(peer, 0).Flush();
  }));
}

TEST_P(GlooReach, SmallAndLargeTensorsOfOneLinkKeepTheirOrder) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    // Sizes around the largest that takes a wire, with an empty and a large tensor in between.
    const std::vector<int64_t> sizes = {16384, 16385, 0, 1, 1 << 20, 16383, 2};
    TensorSpecs specs;
    for (const int64_t size : sizes) specs.push_back({{size}, DType::kFloat32});
    RecvLink& receiver = transport.recv_link(peer, 1);
    constexpr int kMessages = 3;
    for (int i = 0; i < kMessages; ++i) receiver.Post(specs);
    for (int i = 0; i < kMessages; ++i) {
      std::vector<at::Tensor> tensors;
      for (const int64_t size : sizes) tensors.push_back(at::full({size}, i + peer, at::kFloat));
      transport.send_link(peer, 1).Send(tensors);
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto message = receiver.Wait();
      Require(message.size() == sizes.size(), "all tensors");
      for (size_t k = 0; k < sizes.size(); ++k) {
        const auto sent = at::full({sizes[k]}, i + transport.rank(), at::kFloat);
        Require(at::equal(message[k], sent), Str("tensor ", k, " of message ", i));
      }
    }
    transport.send_link(peer, 1).Flush();
  }));
}

TEST_P(GlooReach, TensorsKeepTheirStrides) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    for (const int64_t n : {3, 200}) {  // over the wire, and as a large tensor
      const at::Tensor numbers = at::arange(4 * n * n, at::kFloat).view({2, n, 2 * n});
      const std::vector<at::Tensor> sent = {numbers,
                                            numbers.transpose(1, 2),
                                            numbers.narrow(2, 1, n),
                                            numbers.narrow(2, 0, 1).expand({2, n, n}),
                                            numbers.permute({2, 0, 1}).unsqueeze(1),
                                            numbers.unfold(2, 4, 1),
                                            numbers};
      TensorSpecs specs;
      for (const at::Tensor& tensor : sent) {
        specs.push_back({tensor.sizes().vec(), DType::kFloat32});
      }
      transport.recv_link(peer, 0).Post(specs);
      transport.send_link(peer, 0).Send(sent);
      const auto message = transport.recv_link(peer, 0).Wait();
      for (size_t k = 0; k < sent.size(); ++k) {
        Require(at::equal(message[k], sent[k]), Str("the numbers of tensor ", k));
        Require(message[k].strides() == sent[k].strides(), Str("the strides of tensor ", k));
      }
      transport.send_link(peer, 0).Flush();
    }
  }));
}

TEST(Gloo, ControlCollectivesGiveEveryRankTheSame) {
  ExpectAllWell(RunRanks(3, [](Transport& transport) {
    const double rank = transport.rank();
    const auto sum = transport.AllReduceSum({rank, 1e16 * (rank == 0), -1e16 * (rank == 2), 0.1});
    Require(sum[0] == 3, "0 + 1 + 2");
    Require(sum[3] == 0.1 + 0.1 + 0.1, "ascending order of ranks");
    Require(transport.AllReduceSum({}).empty(), "an empty sum");
    const std::string text = Str("rank ", transport.rank());
    Require(transport.Broadcast(text, 1) == "rank 1", "the text of rank 1");
    Require(transport.Broadcast("", 2).empty(), "an empty text");
    const std::vector<std::string> all = {"rank 0", "rank 1", "rank 2"};
    Require(transport.Gather(text) == all, "all texts");
    const auto long_text = [](int r) {  // an empty text, and two that go through Gloo
      return std::string(100'000 * static_cast<size_t>(r), static_cast<char>('a' + r));
    };
    const std::vector<std::string> texts = {long_text(0), long_text(1), long_text(2)};
    Require(transport.Gather(long_text(transport.rank())) == texts, "all long texts");
    Require(transport.Broadcast(long_text(transport.rank()), 2) == texts[2], "a long text");
  }));
}

TEST_P(GlooReach, GroupsHaveTheirCollectives) {
  const std::vector<GroupSpec> groups = {
      {"pair", {0, 1}}, {"pair", {2}}, {"all", {2, 0, 1}}, {"ring", {1, 2}}};
  const auto check = [](Transport& transport) {
    Require(transport.FindGroup("none") == nullptr, "no group of that name");
    Require((transport.FindGroup("ring") == nullptr) == (transport.rank() == 0), "a group of two");
    for (const char* name : {"pair", "all", "ring"}) {
      if (Group* group = transport.FindGroup(name)) testing::CheckGroup(*group);
    }
  };
  ExpectAllWell(RunRanks(3, check, groups));
}

TEST(Gloo, LargeTensorsAreReadFromTheSendersMemoryWhenTheyAreWaitedFor) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    constexpr int64_t kElements = 100'000;
    if (transport.rank() == 0) {
      const at::Tensor tensor = at::full({kElements}, 1, at::kFloat);
      transport.send_link(1, 0).Send({tensor});
      tensor.fill_(2);  // forbidden; the change shows when rank 1 copies later
      transport.Barrier();
      transport.send_link(1, 0).Flush();
    } else {
      transport.recv_link(0, 0).Post({{{kElements}, DType::kFloat32}});
      transport.Barrier();
      const auto message = transport.recv_link(0, 0).Wait();
      Require(at::equal(message[0], at::full({kElements}, 2, at::kFloat)), "what is there now");
    }
  }));
}

TEST(Gloo, ASenderFreesWhatWasRead) {
  ExpectAllWell(RunRanks(2, [](Transport& transport) {
    const TensorSpecs specs = {{{100'000}, DType::kFloat32}};
    constexpr int kMessages = 20;
    const int peer = 1 - transport.rank();
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sent;
    const auto count_kept = [&] {
      return std::ranges::count_if(sent, [](const auto& one) { return !one.expired(); });
    };
    for (int i = 0; i < kMessages; ++i) {
      const at::Tensor tensor = at::full(specs[0].shape, i, at::kFloat);
      sent.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          tensor.storage().unsafeGetStorageImpl()));
      transport.recv_link(peer, 0).Post(specs);
      transport.send_link(peer, 0).Send({tensor});
      transport.recv_link(peer, 0).Wait();
      transport.Barrier();
    }
    Require(count_kept() < kMessages / 2, "that a send looks what has been read");
    transport.send_link(peer, 0).Flush();
    Require(count_kept() == 0, "that nothing is kept behind a flush");
  }));
}

TEST(Gloo, LargeGroupsHaveTheirCollectives) {
  ExpectAllWell(testing::RunGlooRanks(6, {{"all", {3, 0, 5, 1, 4, 2}}}, [](Transport& transport) {
    testing::CheckGroup(*transport.FindGroup("all"));
  }));
}

TEST(Gloo, WiresAreNoMoreThanRanksAndLinks) {
  GroupSpec all = {"data", {}};
  for (int rank = 0; rank < 64; ++rank) all.ranks.push_back(63 - rank);
  const std::vector<LinkSpec> links = {{2, 3, 0}, {3, 2, 1}};
  constexpr int kReads = 1 << 16;  // channels on which receivers confirm what they have read
  std::set<WireKey> expected = {{0, 15}};
  for (const auto& [peer, channel] : std::set<WireKey>{{63, 16}, {4, 17}, {2, 0}, {2, 1}}) {
    expected.insert({{peer, channel}, {peer, channel + kReads}});
  }
  EXPECT_EQ(WantedWires(3, 64, links, {all, {"model", {3, 4}}}), expected);
  EXPECT_EQ(WantedWires(0, 64, links, {all}).size(), 65u);
  EXPECT_TRUE(WantedWires(0, 1, {}, {}).empty());
}

TEST(Gloo, ARankThatMeetsAndSaysNothingEndsTheOthersWait) {
  const auto statuses = testing::RunProcesses(2, [](const RankPlace& place) {
    const auto transport = MakeGlooTransport(place, testing::AllLinks(2), {}, 5);
    if (place.rank == 1) {
      transport->recv_link(0, 0).Post({{{1}, DType::kFloat32}});
      transport->recv_link(0, 0).Wait();  // waits until rank 0 has ended
    }
    try {
      transport->Barrier();
    } catch (const PeerError& error) {
      _exit(std::string(error.what()).find("it sent nothing for 5 s") == std::string::npos ? 6 : 5);
    }
  });
  EXPECT_EQ(WEXITSTATUS(statuses[0]), 5);
}

TEST(Gloo, AbortEndsAStartedCollective) {
  const std::vector<GroupSpec> groups = {{"data", {0, 1}}};
  ExpectAllWell(testing::RunGlooRanks(2, groups, [](Transport& transport) {
    transport.Barrier();
    if (transport.rank() == 1) _exit(0);  // its sockets close, which rank 0 may notice first
    const at::Tensor tensor = at::full({100000}, 1, at::kFloat);
    Group& group = *transport.FindGroup("data");
    const auto pending = group.Start(
        {.kind = Collective::Kind::kAllReduce, .input = tensor, .output = tensor, .bounds = {}});
    transport.Abort("the watchdog spoke");
    try {
      pending->Wait();
    } catch (const WorldError&) {
      _exit(0);
    }
    _exit(4);
  }));
}

TEST(Gloo, WordsReachTheWatchdogsOfOtherRanks) {
  ExpectAllWell(RunRanks(3, [](Transport& transport) {
    if (transport.rank() != 1) transport.SetStatus(Str("rank ", transport.rank(), " reads"));
    transport.Barrier();
    const std::vector<std::string> all = {"rank 0 reads", "rank 2 reads"};
    Require(transport.Statuses() == all, "the words of the ranks that left one");
    transport.Barrier();
    if (transport.rank() == 2) transport.SetStatus("");
    transport.Barrier();
    Require(transport.Statuses() == std::vector<std::string>{"rank 0 reads"}, "one taken back");
  }));
}

/// Numbers of elements: the first goes over a wire, the second is read from the sender's memory.
class GlooSizes : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooSizes, ::testing::Values(4, 100'000));

TEST_P(GlooSizes, AbortEndsAWaitOnAnotherThread) {
  const auto statuses = RunRanks(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    if (transport.rank() == 1) {
      transport.recv_link(peer, 0).Post({{{GetParam()}, DType::kFloat32}});
      transport.recv_link(peer, 0).Wait();  // waits until rank 0 has noticed its own abort
      return;
    }
    transport.recv_link(peer, 0).Post({{{GetParam()}, DType::kFloat32}});
    std::thread watchdog([&] { transport.Abort("the watchdog spoke"); });
    std::string why;
    try {
      transport.recv_link(peer, 0).Wait();
    } catch (const PeerError&) {
      _exit(8);  // the error must be the abort's own
    } catch (const WorldError& error) {
      why = error.what();
    }
    watchdog.join();
    if (why != "the watchdog spoke") _exit(3);
    try {
      transport.send_link(peer, 0).Send({at::full({GetParam()}, 1, at::kFloat)});
    } catch (const WorldError&) {
      _exit(7);  // an aborted transport refuses further work
    }
    _exit(4);
  });
  EXPECT_EQ(WEXITSTATUS(statuses[0]), 7);
  EXPECT_EQ(WEXITSTATUS(statuses[1]), 1) << "rank 1 sees that rank 0 has gone";
}

TEST_P(GlooSizes, APeerThatDiesIsNamed) {
  const auto statuses = RunRanks(2, [](Transport& transport) {
    transport.Barrier();
    if (transport.rank() == 1) kill(getpid(), SIGKILL);
    transport.recv_link(1, 0).Post({{{GetParam()}, DType::kFloat32}});
    try {
      transport.recv_link(1, 0).Wait();
    } catch (const PeerError& error) {  // the class of errors that another rank's end causes
      const bool named = std::string(error.what()).find("lost the connection to rank 1") == 7;
      _exit(named ? 5 : 6);
    }
    _exit(4);
  });
  EXPECT_EQ(WEXITSTATUS(statuses[0]), 5);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
}

}  // namespace
}  // namespace strata
