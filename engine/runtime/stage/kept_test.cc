#include "engine/runtime/stage/kept.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

Tensors Numbers(std::initializer_list<int> numbers) {
  Tensors tensors;
  for (const int number : numbers) tensors.push_back(at::scalar_tensor(number));
  return tensors;
}

std::vector<int> Texts(const Tensors& tensors) {
  std::vector<int> numbers;
  for (const at::Tensor& tensor : tensors) numbers.push_back(tensor.item<int>());
  return numbers;
}

// Layers 3 to 5 of a job: "a" passes through, "b" ends at 4, "c" begins at 5 and goes on with two
// tensors.
class KeptTest : public ::testing::Test {
 protected:
  const std::vector<KeptValue> values_ = {{{"a", 0, 9}, 1}, {{"b", 1, 4}, 2}, {{"c", 5, 8}, 2}};
  Kept kept_{values_, 3, 6};
};

TEST_F(KeptTest, TakesTheChainApartAndPutsItTogether) {
  Tensors x = Numbers({1, 10, 20, 21});  // the chain's tensor, a's, and b's two
  kept_.TakeFromInput(x);
  EXPECT_THAT(Texts(x), ElementsAre(1));
  kept_.GiveTo(3, x);
  EXPECT_THAT(Texts(x), ElementsAre(1));
  kept_.TakeFrom(3, x);
  EXPECT_THAT(Texts(x), ElementsAre(1));
  kept_.GiveTo(4, x);
  EXPECT_THAT(Texts(x), ElementsAre(1, 20, 21));
  x = Numbers({5, 6, 5, 6});  // the outputs of layer 5, which keeps the last two
  kept_.TakeFrom(5, x);
  EXPECT_THAT(Texts(x), ElementsAre(5, 6));
  kept_.GiveToOutput(x);
  EXPECT_THAT(Texts(x), ElementsAre(5, 6, 10, 5, 6));
}

TEST_F(KeptTest, TooFewTensorsAreABrokenInvariant) {
  Tensors x = Numbers({1, 10});
  EXPECT_DEATH(kept_.TakeFromInput(x), "kept of");
}

}  // namespace
}  // namespace strata
