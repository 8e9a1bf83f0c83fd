#include "engine/base/tensors/late_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/base/tensors/allocator.h"

namespace strata {
namespace {

TEST(LateMemoryTest, ViewsLiveThroughDropsAndOnlyUsedOnesTakeMemory) {
  InstallAllocator();
  constexpr int64_t kElements = 1 << 20, kBytes = 4 * kElements;
  const int64_t before = MemoryOf(0).current;
  int fills = 0;
  LateMemory late(kElements, at::kFloat, [&] { ++fills; });
  const at::Tensor view = late.tensor().narrow(0, 8, 4).view({2, 2});
  EXPECT_LT(MemoryOf(0).current - before, kBytes / 2);
  EXPECT_FALSE(HasMemory(view));
  for (int round = 1; round <= 2; ++round) {
    NeedMemory(view);
    NeedMemory(late.tensor());
    EXPECT_EQ(fills, round);
    EXPECT_GE(MemoryOf(0).current - before, kBytes);
    late.tensor().copy_(at::arange(kElements));
    EXPECT_TRUE(at::equal(view, at::arange(8, 12, at::kFloat).view({2, 2})));
    late.Drop();
    EXPECT_FALSE(HasMemory(late.tensor()));
    EXPECT_LT(MemoryOf(0).current - before, kBytes / 2);
  }
  late.Allocate();
  EXPECT_EQ(fills, 2) << "the caller writes it";
  EXPECT_TRUE(HasMemory(view));
  late.tensor().fill_(3);
  NeedZeros(view);
  EXPECT_EQ(view.sum().item<float>(), 12) << "it has memory";
  late.Drop();
  NeedZeros(view);
  EXPECT_EQ(late.tensor().abs().sum().item<float>(), 0);
  EXPECT_EQ(fills, 2);
}

TEST(LateMemoryTest, OtherTensorsHaveMemory) {
  const at::Tensor tensor = at::ones({3});
  NeedMemory(tensor);
  NeedMemory({});
  EXPECT_TRUE(HasMemory(tensor));
  at::Tensor view;
  {
    const LateMemory late(16, at::kFloat);
    view = late.tensor().narrow(0, 0, 4);
  }
  NeedMemory(view);  // must not reach the owner that is gone
}

}  // namespace
}  // namespace strata
