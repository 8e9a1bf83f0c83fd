// The NCCL transport over the fake NCCL: ranks are threads, devices shadows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <future>
#include <latch>

#include "engine/base/testing.h"
#include "engine/comm/peer_error.h"
#include "tests/shadow/ranks.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ShadowNcclTest : public ::testing::Test {
 protected:
  ShadowNcclTest() { Machine::Get().Reset(); }
  std::vector<std::string> Run(int ranks, const std::vector<LinkSpec>& links,
                               const std::vector<GroupSpec>& groups,
                               const std::function<void(std::unique_ptr<Transport>)>& body) {
    return RunRanks(nccl_, ranks, links, groups, body);
  }
  void ExpectAllWell() {
    EXPECT_THAT(Machine::Get().reports(), IsEmpty());
    EXPECT_THAT(nccl_.misuses(), IsEmpty());
    EXPECT_EQ(nccl_.aborted(), 0);
  }
  FakeNccl nccl_;
};

const std::vector<LinkSpec> kBothWays = {{0, 1, 0}, {1, 0, 1}};

at::Tensor Numbers(Transport& transport, float value, std::vector<int64_t> sizes = {3}) {
  return at::full(sizes, value, at::dtype(at::kFloat).device(Device(transport.rank())));
}

float First(const at::Tensor& tensor) { return tensor.flatten()[0].item<float>(); }

at::Tensor Receive(RecvLink& link, std::vector<int64_t> shape = {3}) {
  link.Post({{shape, DType::kFloat32}});
  return link.Wait()[0];
}

// Finding 1 of the review: NCCL connects two ranks at their first message, and the host waits for
// the other's call meanwhile. (A training: tests/shadow/engine_test.cc.)
TEST_F(ShadowNcclTest, ReceivesPostedOnBothEndsWaitForNobody) {
  EXPECT_THAT(Run(2, kBothWays, {},
                  [](std::unique_ptr<Transport> transport) {
                    const int me = transport->rank(), peer = 1 - me;
                    RecvLink& from = transport->recv_link(peer, peer);
                    from.Post({{{3}, DType::kFloat32}});
                    transport->send_link(peer, me).Send({Numbers(*transport, 1.0f + me)});
                    EXPECT_EQ(First(from.Wait()[0]), 1.0f + peer);
                  }),
              Each(IsEmpty()));
  ExpectAllWell();
  EXPECT_EQ(nccl_.destroyed(), 4);
  EXPECT_EQ(nccl_.opened_alone(), 0);
}

TEST_F(ShadowNcclTest, MessagesHaveAnyShapeAndStayInOrder) {
  EXPECT_THAT(Run(2, kBothWays, {},
                  [](std::unique_ptr<Transport> transport) {
                    if (transport->rank() == 0) {
                      SendLink& to = transport->send_link(1, 0);
                      const at::Tensor x = at::arange(6, at::kFloat).to(Device(0)).view({2, 3});
                      to.Send({x.t(), Numbers(*transport, 0, {0, 4}), Numbers(*transport, 5, {})});
                      for (int i = 0; i < 20; ++i) to.Send({Numbers(*transport, i, {i % 5 + 1})});
                      return to.Flush();
                    }
                    RecvLink& from = transport->recv_link(0, 0);
                    const DType type = DType::kFloat32;
                    from.Post({{{3, 2}, type}, {{0, 4}, type}, {{}, type}});
                    const auto tensors = from.Wait();
                    EXPECT_TRUE(tensors[0].cpu().equal(at::arange(6, at::kFloat).view({2, 3}).t()));
                    EXPECT_EQ(tensors[1].sizes(), at::IntArrayRef({0, 4}));
                    EXPECT_EQ(First(tensors[2]), 5);
                    for (int i = 0; i < 20; ++i) EXPECT_EQ(First(Receive(from, {i % 5 + 1})), i);
                  }),
              Each(IsEmpty()));
  ExpectAllWell();
}

// Finding 12: however far the host is ahead, messages need as much memory as are alive at once.
TEST_F(ShadowNcclTest, MessagesUseTheSameMemoryAgain) {
  EXPECT_THAT(Run(2, kBothWays, {},
                  [](std::unique_ptr<Transport> transport) {
                    std::set<const void*> memory;
                    at::Tensor sum = Numbers(*transport, 0), kept;
                    for (int i = 0; i < 20; ++i) {
                      if (transport->rank() == 0) {
                        transport->send_link(1, 0).Send({Numbers(*transport, i)});
                      } else {
                        const at::Tensor x = Receive(transport->recv_link(0, 0));
                        memory.insert(x.const_data_ptr());
                        sum.add_(x);
                        kept = x;  // the one before lives until now
                      }
                    }
                    if (transport->rank() == 1) {
                      EXPECT_EQ(First(sum), 190);
                      EXPECT_EQ(memory.size(), 2u);
                    }
                  }),
              Each(IsEmpty()));
  ExpectAllWell();
}

TEST_F(ShadowNcclTest, GroupsHaveAllCollectives) {
  EXPECT_THAT(
      Run(3, {}, {{"data", {0, 1, 2}}, {"pair", {2, 0}}},
          [](std::unique_ptr<Transport> transport) {
            Group& all = *transport->FindGroup("data");
            const int me = transport->rank();
            const auto options = at::dtype(at::kFloat).device(Device(me));
            const at::Tensor x = at::arange(7, options).add(me);
            all.AllReduce(x);
            EXPECT_TRUE(x.cpu().equal(at::arange(7, at::kFloat).mul(3).add(3)));
            all.AllReduce(x, ReduceOp::kMax);
            const at::Tensor y = at::full({2}, me, options);
            all.Broadcast(y, 1);
            EXPECT_EQ(First(y), 1);
            const at::Tensor whole = at::zeros({6}, options);
            all.AllGather(at::full({2}, me, options), whole);
            EXPECT_TRUE(whole.cpu().equal(at::arange(3, at::kFloat).repeat_interleave(2)));
            const at::Tensor part = at::zeros({2}, options);
            all.ReduceScatter(whole, part);
            EXPECT_EQ(First(part), 3 * me);
            const at::Tensor turned = at::zeros({6}, options);
            all.AllToAll(at::arange(6, options).add(10 * me), turned);
            EXPECT_EQ(turned[2].item<float>(), 10 + 2 * me);
            all.Barrier();
            const auto pending = all.Start(
                {.kind = Collective::Kind::kAllReduce, .input = x, .output = x, .bounds = {}});
            EXPECT_TRUE(pending->Wait(60));
            Group* pair = transport->FindGroup("pair");
            ASSERT_EQ(pair != nullptr, me != 1);
            if (me == 2) pair->Send(at::full({2}, 8, options), 1);
            if (me == 0) {
              const at::Tensor message = at::zeros({2}, options);
              pair->Recv(message, 0);
              EXPECT_EQ(First(message), 8);
            }
          }),
      Each(IsEmpty()));
  ExpectAllWell();
}

TEST_F(ShadowNcclTest, OtherCountsAreAnError) {
  const auto errors = Run(2, kBothWays, {}, [](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 0) {
      transport->send_link(1, 0).Send({Numbers(*transport, 1, {4})});
      transport->Barrier();
    } else {
      transport->Barrier();
      Receive(transport->recv_link(0, 0));
    }
  });
  EXPECT_THAT(errors[1], HasSubstr("receiving over the link from rank 0 to rank 1: NCCL: recv of "
                                   "Float (3,) with rank 1 meets send of Float (4,) with rank 0"));
}

// Finding 9: an abort gives its reason, to waits that go on and to later ones.
TEST_F(ShadowNcclTest, AnAbortEndsWaitsWithItsReason) {
  std::latch opened(2), in_collective(1);
  const auto errors =
      Run(2, kBothWays, {{"data", {0, 1}}}, [&](std::unique_ptr<Transport> transport) {
        opened.arrive_and_wait();
        if (transport->rank() == 1) return in_collective.wait();
        const at::Tensor x = Numbers(*transport, 1);
        const auto pending = transport->FindGroup("data")->Start(
            {.kind = Collective::Kind::kAllReduce, .input = x, .output = x, .bounds = {}});
        const auto watchdog = std::async([&] { transport->Abort("the watchdog spoke"); });
        const auto wait = [&] { pending->Wait(60); };
        EXPECT_EQ(ErrorOf(wait), "the watchdog spoke");
        EXPECT_EQ(ErrorOf(wait), "the watchdog spoke");
        EXPECT_EQ(ErrorOf([&] { Receive(transport->recv_link(1, 1)); }), "the watchdog spoke");
        EXPECT_EQ(ErrorOf([&] { transport->send_link(1, 0).Send({x}); }), "the watchdog spoke");
        EXPECT_EQ(ErrorOf([&] { transport->FindGroup("data")->Barrier(); }), "the watchdog spoke");
        in_collective.count_down();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(nccl_.misuses(), IsEmpty());
}

TEST_F(ShadowNcclTest, ALostRankIsAPeerError) {
  std::latch opened(2), killed(1);
  const auto errors =
      Run(2, kBothWays, {{"data", {0, 1}}}, [&](std::unique_ptr<Transport> transport) {
        opened.arrive_and_wait();
        if (transport->rank() == 1) return killed.wait();
        const at::Tensor x = Numbers(*transport, 1);
        const auto pending = transport->FindGroup("data")->Start(
            {.kind = Collective::Kind::kAllReduce, .input = x, .output = x, .bounds = {}});
        nccl_.Kill("rank 1");
        EXPECT_THROW(pending->Wait(60), PeerError);
        EXPECT_THAT(
            ErrorOf([&] { Receive(transport->recv_link(1, 1)); }),
            AllOf(HasSubstr("the link from rank 1 to rank 0"), HasSubstr("rank 1 is gone")));
        killed.count_down();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(nccl_.misuses(), IsEmpty());
}

// A host that waits for its device, as for a step's losses, asks nobody: the watchdog does.
TEST_F(ShadowNcclTest, ALostRankEndsWhatADeviceWaitsFor) {
  std::latch opened(2), killed(1);
  const auto errors =
      Run(2, kBothWays, {{"data", {0, 1}}}, [&](std::unique_ptr<Transport> transport) {
        transport->AbortIfBroken();
        opened.arrive_and_wait();
        if (transport->rank() == 1) return killed.wait();
        const at::Tensor x = Numbers(*transport, 1);
        transport->FindGroup("data")->Start(
            {.kind = Collective::Kind::kAllReduce, .input = x, .output = x, .bounds = {}});
        EXPECT_EQ(nccl_.aborted(), 0);
        nccl_.Kill("rank 1");
        transport->AbortIfBroken();
        EXPECT_GT(nccl_.aborted(), 0);
        EXPECT_THAT(ErrorOf([&] { transport->FindGroup("data")->Barrier(); }),
                    HasSubstr("rank 1 is gone"));
        killed.count_down();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(nccl_.misuses(), IsEmpty());
}

TEST_F(ShadowNcclTest, AnErrorWithinAGroupEndsTheGroup) {
  EXPECT_THAT(Run(2, kBothWays, {},
                  [](std::unique_ptr<Transport> transport) {
                    if (transport->rank() == 1) {
                      EXPECT_EQ(First(Receive(transport->recv_link(0, 0))), 1);
                      return;
                    }
                    const at::Tensor x = Numbers(*transport, 1);
                    SendLink& link = transport->send_link(1, 0);
                    EXPECT_THAT(ErrorOf([&] { link.Send({x.to(at::kComplexFloat)}); }),
                                HasSubstr("no complex"));
                    link.Send({x});
                  }),
              Each(IsEmpty()));
  ExpectAllWell();
}

/// Ranks that wait for each other are told at once, with who waits for what.
TEST_F(ShadowNcclTest, MessagesInTheWrongOrderAreACycle) {
  const auto errors = Run(2, kBothWays, {}, [](std::unique_ptr<Transport> transport) {
    const int me = transport->rank(), peer = 1 - me;
    const at::Tensor x = Receive(transport->recv_link(peer, peer));
    transport->send_link(peer, me).Send({x.add(1)});
  });
  EXPECT_THAT(errors, Each(AllOf(StartsWith("a cycle, in which each waits for the next:"),
                                 HasSubstr("\n  rank 0 launches add"),
                                 HasSubstr("\n  rank 1 launches add"))));
}

}  // namespace
}  // namespace strata::shadow
