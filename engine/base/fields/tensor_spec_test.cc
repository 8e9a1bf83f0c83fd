#include "engine/base/fields/tensor_spec.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

constexpr std::array kAll = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                             DType::kInt64,   DType::kInt32,   DType::kInt16,   DType::kInt8,
                             DType::kUInt8,   DType::kBool};

TEST(DType, NamesReadBack) {
  for (DType dtype : kAll) EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
}

TEST(DType, TakesPyTorchsShortNames) {
  EXPECT_EQ(ParseDType("float"), DType::kFloat32);
  EXPECT_EQ(ParseDType("double"), DType::kFloat64);
  EXPECT_EQ(ParseDType("half"), DType::kFloat16);
  EXPECT_EQ(ParseDType("long"), DType::kInt64);
  EXPECT_EQ(ParseDType("int"), DType::kInt32);
  EXPECT_EQ(ParseDType("short"), DType::kInt16);
}

TEST(DType, RefusesOthersWithTheNearest) {
  EXPECT_EQ(ErrorOf([] { ParseDType("float23"); }),
            "there is no dtype \"float23\"; did you mean \"float32\"?");
  EXPECT_EQ(ErrorOf([] { ParseDType("bf16"); }),
            "there is no dtype \"bf16\"; it is one of float32, float64, float16, bfloat16, int64, "
            "int32, int16, int8, uint8, bool");
  EXPECT_NE(ErrorOf([] { ParseDType(""); }), "");
}

TEST(DType, Sizes) {
  EXPECT_EQ(DTypeSize(DType::kFloat64), 8);
  EXPECT_EQ(DTypeSize(DType::kFloat32), 4);
  EXPECT_EQ(DTypeSize(DType::kBFloat16), 2);
  EXPECT_EQ(DTypeSize(DType::kInt64), 8);
  EXPECT_EQ(DTypeSize(DType::kBool), 1);
}

TEST(DType, OnlyFloatingOnesCarryGradients) {
  int floating = 0;
  for (DType dtype : kAll) floating += IsFloating(dtype) ? 1 : 0;
  EXPECT_EQ(floating, 4);
  EXPECT_TRUE(IsFloating(DType::kBFloat16));
  EXPECT_FALSE(IsFloating(DType::kInt64));
}

TEST(TensorSpec, CountsElementsAndBytes) {
  const TensorSpec image = {{8, 3, 224, 224}, DType::kFloat32};
  EXPECT_EQ(image.elements(), 8 * 3 * 224 * 224);
  EXPECT_EQ(image.bytes(), 4 * image.elements());
  EXPECT_EQ((TensorSpec{{}, DType::kInt64}).elements(), 1);
  EXPECT_EQ((TensorSpec{{4, 0}, DType::kInt64}).elements(), 0);
}

TEST(TensorSpec, DoesNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Product({}), 1);
  EXPECT_EQ(Product({{3, 4, 5}}), 60);
  EXPECT_EQ(Product({{int64_t{1} << 31, int64_t{1} << 31, 2}}), kMost);
  EXPECT_EQ((TensorSpec{{int64_t{1} << 62}, DType::kFloat32}).bytes(), kMost);
}

TEST(TensorSpec, PrintsDTypeAndShape) {
  EXPECT_EQ((TensorSpec{{8, 3}, DType::kFloat32}).ToString(), "float32 (8, 3)");
  EXPECT_EQ((TensorSpec{{8}, DType::kInt64}).ToString(), "int64 (8,)");
  EXPECT_EQ((TensorSpec{{}, DType::kBool}).ToString(), "bool ()");
}

TEST(TensorSpec, SeveralAreJoined) {
  EXPECT_EQ(ToString(TensorSpecs{}), "no tensor");
  EXPECT_EQ(ToString(TensorSpecs{{{2}, DType::kInt8}}), "int8 (2,)");
  EXPECT_EQ(ToString(TensorSpecs{{{2}, DType::kInt8}, {{2, 3}, DType::kFloat16}}),
            "int8 (2,) and float16 (2, 3)");
}

}  // namespace
}  // namespace strata
