// Tests of the NCCL transport on one GPU. NCCL cannot run two ranks on one device, so a rank sends
// to itself.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/base/machine/gpu.h"
#include "engine/comm/cuda/cuda_library.h"
#include "engine/comm/testing.h"

namespace strata {
namespace {

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (GpuCount() == 0) GTEST_SKIP() << "there is no GPU here";
  }
  /// Makes the transport of a world of one rank, with a store of its own.
  std::unique_ptr<Transport> Make(const std::vector<LinkSpec>& links,
                                  const std::vector<GroupSpec>& groups = {},
                                  const std::vector<GroupSpec>& host_groups = {}) {
    const ListeningSocket store = ListenForRanks({});
    place_.store_fd = store.fd;
    place_.store_port = store.port;
    return strata_cuda_library()->make_nccl_transport(place_, links, groups, host_groups, 60);
  }
  RankPlace place_;
};

TEST_F(NcclTest, AMessageToItselfArrivesInOrder) {
  const auto transport = Make({{0, 0, 0}, {0, 0, 1}}, {}, {});
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  for (int i = 0; i < 3; ++i) {
    transport->send_link(0, 0).Send({at::full({1000, 7}, i, options)});
    transport->send_link(0, 1).Send({at::arange(i, i + 5, options.dtype(at::kLong))});
  }
  for (int i = 0; i < 3; ++i) {
    transport->recv_link(0, 0).Post({{{1000, 7}, DType::kFloat32}});
    EXPECT_TRUE(at::equal(transport->recv_link(0, 0).Wait()[0], at::full({1000, 7}, i, options)));
    transport->recv_link(0, 1).Post({{{5}, DType::kInt64}});
    EXPECT_TRUE(at::equal(transport->recv_link(0, 1).Wait()[0],
                          at::arange(i, i + 5, options.dtype(at::kLong))));
  }
}

TEST_F(NcclTest, ATransposedTensorArrivesContiguous) {
  const auto transport = Make({{0, 0, 0}}, {}, {});
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const at::Tensor sent = at::arange(6, options).view({2, 3}).t();
  transport->send_link(0, 0).Send({sent});
  transport->recv_link(0, 0).Post({{{3, 2}, DType::kFloat32}});
  const at::Tensor received = transport->recv_link(0, 0).Wait()[0];
  EXPECT_TRUE(at::equal(received, sent));
  EXPECT_TRUE(received.is_contiguous());
}

TEST_F(NcclTest, ControlDataGoesOverTheHost) {
  const auto transport = Make({}, {}, {});
  EXPECT_EQ(transport->AllReduceSum({1.5}), std::vector<double>{1.5});
  EXPECT_EQ(transport->Broadcast("text", 0), "text");
}

TEST_F(NcclTest, AGroupOfOneRankHasNcclsCollectives) {
  const auto transport = Make({}, {{"data", {0}}}, {});
  Group* group = transport->FindGroup("data");
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(transport->FindGroup("model"), nullptr);
  const auto input = at::arange(12, at::TensorOptions(at::kFloat).device(at::kCUDA));
  const auto output = at::zeros_like(input);
  for (const auto kind :
       {Collective::Kind::kAllReduce, Collective::Kind::kBroadcast, Collective::Kind::kAllGather,
        Collective::Kind::kReduceScatter, Collective::Kind::kAllToAll}) {
    output.zero_();
    const auto pending =
        group->Start({.kind = kind, .input = input, .output = output, .bounds = {}});
    EXPECT_TRUE(pending->Wait(60));
    EXPECT_TRUE(at::equal(output, input)) << CollectiveName(kind);
  }
  group->Barrier();
}

TEST_F(NcclTest, AGroupMayTakeTheHostsTensorsToo) {
  const GroupSpec world = {"world", {0}};
  const auto transport = Make({}, {world}, {world});
  for (const auto device : {at::kCPU, at::kCUDA}) {
    Group* group =
        device == at::kCPU ? transport->FindHostGroup("world") : transport->FindGroup("world");
    ASSERT_NE(group, nullptr);
    const auto tensor = at::full({3}, 7, at::TensorOptions(at::kFloat).device(device));
    group->AllReduce(tensor);
    EXPECT_EQ(tensor[2].item<float>(), 7);
  }
  EXPECT_EQ(Make({}, {world}, {})->FindHostGroup("world"), nullptr);
}

TEST_F(NcclTest, AGpuThatIsNotThereIsNamed) {
  if (c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() == 1) {
    GTEST_SKIP() << "one GPU: it is every rank's";
  }
  place_.local_rank = 1000;
  EXPECT_THROW(Make({}, {}, {}), WorldError);
}

TEST_F(NcclTest, AfterAbortNothingIsSent) {
  const auto transport = Make({{0, 0, 0}}, {}, {});
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  transport->send_link(0, 0).Send({at::full({4}, 1, options)});
  transport->Abort("the watchdog spoke");
  EXPECT_THROW(transport->recv_link(0, 0).Wait(), WorldError);
}

}  // namespace
}  // namespace strata
