#include "engine/comm/transports/thread_transport.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "engine/base/error.h"
#include "engine/comm/specs.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using Transports = std::vector<std::unique_ptr<Transport>>;

/// Runs `body` for every rank on its own thread.
template <class Body>
void OnAllRanks(Transports& transports, const Body& body) {
  std::vector<std::jthread> threads;
  for (auto& transport : transports) {
    threads.emplace_back([&body, &transport] { body(*transport); });
  }
}

std::vector<at::Tensor> Number(int value) { return {at::full({1}, value, at::kInt)}; }
const TensorSpecs kNumber = {{{1}, DType::kInt32}};

TEST(ThreadTransportTest, LinksAreFirstInFirstOutAndDoNotMix) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}, {0, 1, 1}, {1, 0, 1}});
  ends[0]->send_link(1, 0).Send(Number(1));
  ends[0]->send_link(1, 1).Send(Number(2));
  ends[0]->send_link(1, 0).Send(Number(3));
  RecvLink& link = ends[1]->recv_link(0, 0);
  link.Post(kNumber);
  link.Post(kNumber);
  EXPECT_EQ(link.Wait()[0].item<int>(), 1);
  EXPECT_EQ(link.Wait()[0].item<int>(), 3);
  ends[1]->recv_link(0, 1).Post(kNumber);
  EXPECT_EQ(ends[1]->recv_link(0, 1).Wait()[0].item<int>(), 2);
}

TEST(ThreadTransportTest, NothingIsCopied) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}});
  const auto sent = Number(1);
  ends[0]->send_link(1, 0).Send(sent);
  ends[1]->recv_link(0, 0).Post(kNumber);
  EXPECT_EQ(ends[1]->recv_link(0, 0).Wait()[0].data_ptr(), sent[0].data_ptr());
}

TEST(ThreadTransportTest, AReceiverWaitsForALateSender) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}, {1, 0, 0}});
  constexpr int kRounds = 2000;
  std::jthread echo([&] {
    for (int i = 0; i < kRounds; ++i) {
      ends[1]->recv_link(0, 0).Post(kNumber);
      ends[1]->send_link(0, 0).Send(ends[1]->recv_link(0, 0).Wait());
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ends[0]->send_link(1, 0).Send(Number(i));
    ends[0]->recv_link(1, 0).Post(kNumber);
    ASSERT_EQ(ends[0]->recv_link(1, 0).Wait()[0].item<int>(), i);
  }
}

TEST(ThreadTransportTest, CollectivesSeeAllRanksInOrder) {
  auto ends = MakeThreadTransports(3, {});
  OnAllRanks(ends, [](Transport& end) {
    for (int round = 0; round < 500; ++round) {
      const double rank = end.rank();
      // The sum depends on the order of its terms: only ascending ranks give this result.
      const std::vector<double> terms = {1e16, 1, -1e16};
      EXPECT_THAT(end.AllReduceSum({rank, terms[end.rank()]}),
                  ElementsAre(3.0, (1e16 + 1) + -1e16));
      EXPECT_EQ(end.Broadcast(std::to_string(round) + "/" + std::to_string(end.rank()), 1),
                std::to_string(round) + "/1");
      EXPECT_THAT(end.Gather(std::to_string(end.rank())), ElementsAre("0", "1", "2"));
      end.Barrier();
    }
  });
}

TEST(ThreadTransportTest, AbortEndsWaitingNowAndLater) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}});
  std::promise<void> started;
  auto receive = std::async(std::launch::async, [&] {
    ends[1]->recv_link(0, 0).Post(kNumber);
    started.set_value();
    ends[1]->recv_link(0, 0).Wait();
  });
  started.get_future().wait();
  ends[1]->Abort("rank 0 is gone");
  ends[1]->Abort("a second cause");
  try {
    receive.get();
    ADD_FAILURE() << "expected a WorldError";
  } catch (const WorldError& error) {
    EXPECT_STREQ(error.what(), "rank 0 is gone");
  }
  EXPECT_THROW(ends[1]->Barrier(), WorldError);
  ends[0]->send_link(1, 0).Send(Number(1));  // the other rank may still send
}

TEST(ThreadTransportTest, AbortEndsCollectives) {
  auto ends = MakeThreadTransports(2, {});
  auto barrier = std::async(std::launch::async, [&] { ends[0]->Barrier(); });
  ends[0]->Abort("enough");
  EXPECT_THROW(barrier.get(), WorldError);
}

TEST(ThreadTransportTest, StatusesAreSeenByAll) {
  auto ends = MakeThreadTransports(2, {});
  ends[1]->SetStatus("reads data");
  EXPECT_THAT(ends[0]->Statuses(), ElementsAre("reads data"));
  ends[1]->SetStatus("");
  EXPECT_THAT(ends[0]->Statuses(), ElementsAre());
}

TEST(ThreadTransportDeathTest, BrokenInvariantsAbort) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}});
  EXPECT_DEATH(ends[1]->send_link(0, 0), "no link from 1 to 0");
  EXPECT_DEATH(ends[1]->recv_link(0, 0).Wait(), "nothing was posted");
}

/// A script's calls of strata.comm may have such a fault, when not all ranks make the same call.
TEST(ThreadTransportTest, AnotherShapeThanWasPostedIsAnError) {
  auto ends = MakeThreadTransports(2, {{0, 1, 0}});
  ends[0]->send_link(1, 0).Send(Number(1));
  ends[1]->recv_link(0, 0).Post({{{2}, DType::kInt32}});
  try {
    ends[1]->recv_link(0, 0).Wait();
    ADD_FAILURE() << "expected a WorldError";
  } catch (const WorldError& error) {
    EXPECT_STREQ(error.what(), "rank 0 sent int32 (1,) where rank 1 expected int32 (2,)");
  }
}

}  // namespace
}  // namespace strata
