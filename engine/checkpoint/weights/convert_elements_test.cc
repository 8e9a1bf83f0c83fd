#include "engine/checkpoint/weights/convert_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace strata {
namespace {

using testing::ElementsAre;

template <class To, class From>
std::vector<To> Converted(DType from, const std::vector<From>& values, DType to) {
  std::vector<To> result(values.size());
  ConvertElements(from, values.data(), to, result.data(), static_cast<int64_t>(values.size()));
  return result;
}

/// Every bit pattern of 16 bits must convert to float and double exactly, and back to itself. NaNs
/// must stay NaNs.
TEST(ConvertTest, SixteenBitsThereAndBack) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto floats = Converted<float>(dtype, all, DType::kFloat32);
    const auto back = Converted<uint16_t>(DType::kFloat32, floats, dtype);
    const auto doubles = Converted<double>(dtype, all, DType::kFloat64);
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(floats[i])) {
        EXPECT_TRUE(std::isnan(Converted<float>(dtype, std::vector{back[i]}, DType::kFloat32)[0]));
        continue;
      }
      ASSERT_EQ(back[i], all[i]) << DTypeName(dtype);
      ASSERT_EQ(doubles[i], floats[i]);
    }
  }
}

// torch.tensor([...]).half().view(torch.int16), .bfloat16()
TEST(ConvertTest, RoundsToTheNearestAndToEven) {
  const std::vector<float> values = {1.0F,     1.00048828125F, 1.00146484375F, 65519.0F,
                                     65520.0F, 0x1p-24F,       0x1p-25F,       0x1.8p-25F,
                                     -0.0F,    0x1.ffep-15F,   -INFINITY,      2047.5F};
  EXPECT_THAT(Converted<uint16_t>(DType::kFloat32, values, DType::kFloat16),
              ElementsAre(0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0001, 0x0000, 0x0001, 0x8000,
                          0x0400, 0xfc00, 0x6800));
  const std::vector<float> brains = {1.0F, 1.00390625F, 1.01171875F, 3.4028235e38F, 1e-45F, -2.5F};
  EXPECT_THAT(Converted<uint16_t>(DType::kFloat32, brains, DType::kBFloat16),
              ElementsAre(0x3f80, 0x3f80, 0x3f82, 0x7f80, 0x0000, 0xc020));
  EXPECT_THAT(Converted<float>(DType::kFloat64, std::vector<double>{0.1, 1e300}, DType::kFloat32),
              ElementsAre(0.1F, INFINITY));
}

TEST(ConvertTest, OnlyFloatingTypes) {
  EXPECT_TRUE(CanConvert(DType::kInt64, DType::kInt64));
  EXPECT_FALSE(CanConvert(DType::kInt64, DType::kFloat32));
  EXPECT_FALSE(CanConvert(DType::kFloat32, DType::kInt32));
  EXPECT_THAT(Converted<int64_t>(DType::kInt64, std::vector<int64_t>{-3}, DType::kInt64),
              ElementsAre(-3));
}

}  // namespace
}  // namespace strata
