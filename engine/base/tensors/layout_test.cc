#include "engine/base/tensors/layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

struct Case {
  const char* name;
  at::Tensor tensor;
  int64_t spanned;
  bool is_default = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

at::Tensor Numbers(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes);
}

class LayoutTest : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutTest, IsKeptByACloneAndByAMessage) {
  const at::Tensor& tensor = GetParam().tensor;
  EXPECT_EQ(HasDefaultStrides(tensor), GetParam().is_default);
  EXPECT_EQ(ElementsSpanned(tensor), GetParam().spanned);
  const at::Tensor row = InOneRow(tensor);
  EXPECT_EQ(row.sizes(), at::IntArrayRef({tensor.numel()}));
  for (const at::Tensor& kept :
       {CloneAsItLies(tensor), FromOneRow(row.clone(), tensor.sizes(), tensor.strides())}) {
    EXPECT_TRUE(kept.equal(tensor));
    EXPECT_EQ(kept.strides(), tensor.strides());
    EXPECT_FALSE(kept.storage().is_alias_of(tensor.storage()));
    EXPECT_GE(kept.storage().nbytes(), GetParam().spanned * sizeof(float));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, LayoutTest,
    ::testing::Values(
        Case{"plain", Numbers({2, 3, 4}), 24, true}, Case{"scalar", Numbers({}), 1, true},
        Case{"empty", Numbers({2, 0, 4}), 0, true},
        Case{"one_element_dims", Numbers({2, 1, 4}).as_strided({2, 1, 4}, {4, 9, 1}), 8},
        Case{"transposed", Numbers({2, 3, 4}).transpose(1, 2), 24},
        Case{"channels_last", Numbers({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
             120},
        Case{"a_part_without_holes", Numbers({5, 4}).narrow(0, 1, 3), 12, true},
        Case{"holes", Numbers({4, 6}).narrow(1, 2, 3), 21},
        Case{"transposed_with_holes", Numbers({4, 6}).narrow(1, 2, 3).t(), 21},
        Case{"one_column", Numbers({4, 6}).select(1, 3), 19},
        Case{"expanded", Numbers({3, 1}).expand({3, 5}), 3},
        Case{"expanded_scalar", Numbers({}).expand({3, 5}), 1},
        Case{"expanded_with_holes", Numbers({3, 4}).narrow(1, 1, 1).expand({3, 5}), 9},
        Case{"windows", Numbers({7}).unfold(0, 3, 1), 7}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LayoutTest, WithoutHolesNothingIsCopied) {
  const at::Tensor tensor = Numbers({2, 3, 4}).permute({2, 0, 1});
  const at::Tensor row = InOneRow(tensor);
  EXPECT_EQ(row.const_data_ptr(), tensor.const_data_ptr());
  EXPECT_EQ(FromOneRow(row, tensor.sizes(), tensor.strides()).const_data_ptr(),
            tensor.const_data_ptr());
}

}  // namespace
}  // namespace strata
