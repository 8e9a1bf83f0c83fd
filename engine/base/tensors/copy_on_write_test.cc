#include "engine/base/tensors/copy_on_write.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/layout.h"

namespace strata {
namespace {

class CopyOnWriteTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { InstallAllocator(); }
};

const void* MemoryOf(const at::Tensor& tensor) { return tensor.const_data_ptr(); }

TEST_F(CopyOnWriteTest, OnlyAWriteCopies) {
  const at::Tensor original = at::ones({4, 6}).t();
  const at::Tensor clone = CopyOnWrite(original);
  EXPECT_EQ(MemoryOf(clone), MemoryOf(original));
  EXPECT_EQ(clone.strides(), original.strides());
  EXPECT_EQ(clone.exp().sum().item<float>(), original.exp().sum().item<float>());
  EXPECT_EQ(MemoryOf(clone), MemoryOf(original));
  clone.flatten(0, 0).sub_(1);  // writes through a view
  EXPECT_NE(MemoryOf(clone), MemoryOf(original));
  EXPECT_TRUE(clone.equal(at::zeros({6, 4})));
  EXPECT_TRUE(original.equal(at::ones({6, 4})));
}

TEST_F(CopyOnWriteTest, TheOriginalMayBeWrittenToAsWell) {
  const at::Tensor original = at::ones({3}, at::kLong);
  const at::Tensor clone = CopyOnWrite(original), other = CopyOnWrite(original);
  original.add_(2);
  EXPECT_TRUE(original.equal(at::full({3}, 3)));
  EXPECT_TRUE(clone.equal(at::ones({3}, at::kLong)));
  clone.zero_();
  EXPECT_TRUE(other.equal(at::ones({3}, at::kLong)));
}

TEST_F(CopyOnWriteTest, ASmallPartIsCopiedAtOnce) {
  const at::Tensor table = at::arange(1000, at::kFloat).view({100, 10});
  const at::Tensor part = table.narrow(0, 7, 2);
  const at::Tensor clone = CopyOnWrite(part);
  EXPECT_EQ(clone.storage().nbytes(), 20 * sizeof(float));
  clone.zero_();
  EXPECT_EQ(part.sum().item<float>(), at::arange(70, 90).sum().item<float>());
}

TEST_F(CopyOnWriteTest, MemoryOfOthersIsCopiedAtOnce) {
  std::vector<float> numbers = {1, 2, 3};
  const at::Tensor original = at::from_blob(
      numbers.data(), {3}, [](void*) {}, at::kFloat);
  const at::Tensor clone = CopyOnWrite(original);
  EXPECT_NE(MemoryOf(clone), MemoryOf(original));
  clone.zero_();
  EXPECT_EQ(numbers[1], 2);
}

TEST_F(CopyOnWriteTest, ASparseTensorStaysItself) {
  const at::Tensor sparse = at::ones({2, 2}).to_sparse();
  EXPECT_TRUE(CopyOnWrite(sparse).is_same(sparse));
}

TEST_F(CopyOnWriteTest, GradientsPassAsIfItWereTheOriginal) {
  const at::Tensor leaf = at::ones({4}).requires_grad_(true);
  const at::Tensor whole = leaf * 3;
  for (const at::Tensor& original : {leaf, whole, whole.view({2, 2})}) {
    leaf.mutable_grad().reset();
    const at::Tensor clone = CopyOnWrite(original);
    EXPECT_FALSE(clone.is_leaf());
    EXPECT_FALSE(clone.is_view());
    clone.mul_(clone.detach().clone());
    clone.sum().backward({}, /*retain_graph=*/true);
    const double factor = original.is_same(leaf) ? 1 : 9;
    EXPECT_TRUE(leaf.grad().equal(at::full({4}, factor)));
    EXPECT_EQ(original.sum().item<double>(), original.is_same(leaf) ? 4 : 12);
  }
}

// Clones must not be lost, and ThreadSanitizer must find no race.
TEST_F(CopyOnWriteTest, ThreadsMayTakeClonesOfOneTensor) {
  const at::Tensor original = at::ones({1000});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) {
        const at::Tensor clone = CopyOnWrite(original);
        if (k % 2 == 0) clone.zero_();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(original.equal(at::ones({1000})));
}

}  // namespace
}  // namespace strata
