// The shadow devices themselves: the CPU's numbers, and whatever is wrong is reported by name.
#include "tests/shadow/device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/runtime/watch/named_range.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ShadowTest : public ::testing::Test {
 protected:
  ShadowTest() { Machine::Get().Reset(); }
  static c10::Stream NewStream(int device = 0) {
    return guard().getStreamFromGlobalPool(Device(device), false);
  }
  static c10::impl::VirtualGuardImpl guard() {
    Device(0);
    return c10::impl::VirtualGuardImpl(kType);
  }
  static std::vector<std::string> Reports() { return Machine::Get().reports(); }
};

/// A small network of many kinds of operators.
at::Tensor Loss(const std::vector<at::Tensor>& p, at::Tensor x, const at::Tensor& labels) {
  x = at::relu(at::conv2d(x, p[0], p[1]));
  x = at::max_pool2d(x, {2, 2}).flatten(1);
  x = at::layer_norm(at::gelu(at::linear(x, p[2], p[3])), {32}, p[4], p[5]);
  x = at::cat({x.narrow(1, 0, 16), x.split(16, 1)[1] * 2}, 1);
  return at::cross_entropy_loss(at::linear(x, p[6], p[7]), labels);
}

TEST_F(ShadowTest, HasTheBitsOfTheCpu) {
  at::manual_seed(1);
  std::vector<at::Tensor> cpu, shadow;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {8, 3, 3, 3}, {8}, {32, 392}, {32}, {32}, {32}, {10, 32}, {10}}) {
    cpu.push_back(at::randn(sizes).requires_grad_(true));
    shadow.push_back(cpu.back().detach().to(Device(1)).requires_grad_(true));
  }
  const at::Tensor x = at::randn({4, 3, 16, 16}), labels = at::randint(0, 10, {4});
  const at::Tensor expected = Loss(cpu, x, labels);
  const at::Tensor loss = Loss(shadow, x.to(Device(1)), labels.to(Device(1)));
  EXPECT_EQ(loss.device().str(), "shadow:1");
  EXPECT_EQ(loss.item<float>(), expected.item<float>());
  expected.backward();
  loss.backward();
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_TRUE(shadow[i].grad().cpu().equal(cpu[i].grad())) << i;
  }
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(ShadowTest, AUseOnAnotherStreamWithoutAnEventIsReported) {
  const at::Tensor x = at::ones({2, 3}, Device(0));
  const c10::Stream other = NewStream();
  {
    const NamedRange action("1F3"), layer("Linear 2");
    const c10::StreamGuard on_other(other);
    x.mul_(2);
  }
  EXPECT_THAT(Reports(),
              Contains(Str("mul in 1F3, Linear 2 writes Float (2, 3) on stream ", other.id(),
                           " of shadow:0 that was written by fill_ on the default stream of "
                           "shadow:0 with no event between")));
}

TEST_F(ShadowTest, AnEventOrdersStreams) {
  const at::Tensor x = at::ones({2, 3}, Device(0));
  const c10::Stream other = NewStream();
  c10::Event before(kType), after(kType);
  before.record(guard().getStream(Device(0)));
  {
    const c10::StreamGuard on_other(other);
    before.block(other);
    x.mul_(2);
    after.record(other);
  }
  after.block(guard().getStream(Device(0)));
  EXPECT_EQ((x + 1).sum().item<float>(), 18);
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(ShadowTest, PartsOfAMemoryAreApart) {
  const at::Tensor x = at::ones({8}, Device(0));
  const c10::Stream other = NewStream();
  c10::Event before(kType);
  before.record(guard().getStream(Device(0)));
  before.block(other);
  {
    const c10::StreamGuard on_other(other);
    x.narrow(0, 4, 4).mul_(2);
  }
  x.narrow(0, 0, 4).mul_(3);
  EXPECT_THAT(Reports(), IsEmpty());
  x.narrow(0, 2, 3).add_(1);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("add_ writes Float (3,)")));
}

TEST_F(ShadowTest, MemoryThatAStreamMayUseIsNotFreed) {
  const c10::Stream other = NewStream();
  for (const bool recorded : {true, false}) {
    at::Tensor x = at::ones({5}, Device(0));
    c10::Event before(kType);
    before.record(guard().getStream(Device(0)));
    before.block(other);
    {
      const c10::StreamGuard on_other(other);
      x.mul_(2);
    }
    if (recorded) x.record_stream(other);
  }
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("is freed while mul on stream")));
}

TEST_F(ShadowTest, DevicesDoNotMix) {
  const at::Tensor cpu = at::ones({3}), zero = at::ones({3}, Device(0)),
                   one = at::ones({3}, Device(1));
  EXPECT_THROW(cpu + zero, c10::Error);
  EXPECT_THROW(zero + one, c10::Error);
  EXPECT_THROW(at::cat({zero, one}), c10::Error);
  EXPECT_EQ((zero + at::scalar_tensor(2)).sum().item<float>(), 9);
  EXPECT_EQ((zero + one.to(Device(0))).sum().item<float>(), 6);
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(ShadowTest, CountsWhatTheHostWaitsFor) {
  const NamedRange range("0F0");
  const at::Tensor x = at::ones({3}).pin_memory().to(Device(0), /*non_blocking=*/true);
  (x * 2).add_(1);
  const auto now = [] { return Machine::Get().counts()["0F0"]; };
  EXPECT_EQ(now().synchronisations, 0);
  x.sum().item<float>();
  x.cpu();
  at::nonzero(x);
  EXPECT_THAT(now().synchronising, ElementsAre(std::pair("copy to the host", 1),
                                               std::pair("item", 1), std::pair("nonzero", 1)));
  EXPECT_EQ(now().transfers, 3);
}

TEST_F(ShadowTest, AnAsynchronousCopyArrivesWhenTheHostHasWaited) {
  const at::Tensor x = at::full({3}, 7.0f, Device(0));
  const at::Tensor host = at::zeros({3}).pin_memory();
  host.copy_(x, /*non_blocking=*/true);
  c10::Event copied(kType);
  copied.record(guard().getStream(Device(0)));
  x.zero_();
  EXPECT_EQ(host[0].item<float>(), 0);
  copied.synchronize();
  EXPECT_EQ(host[0].item<float>(), 7);
}

TEST_F(ShadowTest, CountsMemory) {
  Device(2);
  const int64_t before = Machine::Get().bytes(2);
  Machine::Get().ResetPeak(2);
  { const at::Tensor x = at::zeros({1000}, Device(2)); }
  EXPECT_EQ(Machine::Get().bytes(2), before);
  EXPECT_EQ(Machine::Get().peak_bytes(2), before + 4000);
}

}  // namespace
}  // namespace strata::shadow
