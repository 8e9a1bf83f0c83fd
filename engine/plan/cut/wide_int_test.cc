#include "engine/plan/cut/wide_int.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace strata::partition {
namespace {

constexpr UInt128 kAllOnes = ~UInt128{0};

UInt128 Wide(uint64_t high, uint64_t low) { return UInt128{high} << 64 | low; }

/// Computes x * x by adding x, shifted, for each bit of x that is set.
UInt256 SquareBitByBit(UInt128 x) {
  UInt256 sum;
  for (int bit = 0; bit < 127; ++bit) {
    if ((x >> bit & 1) == 0) continue;
    sum = sum + UInt256{bit == 0 ? 0 : x >> (128 - bit), x << bit};
  }
  return sum;
}

TEST(UInt256, AdditionCarries) {
  EXPECT_EQ((UInt256{0, 1} + UInt256{0, 2}), (UInt256{0, 3}));
  EXPECT_EQ((UInt256{0, kAllOnes} + UInt256{0, 1}), (UInt256{1, 0}));
  EXPECT_EQ((UInt256{1, kAllOnes} + UInt256{2, kAllOnes}), (UInt256{4, kAllOnes - 1}));
}

TEST(UInt256, OrderLooksAtTheHighHalfFirst) {
  EXPECT_LT((UInt256{0, kAllOnes}), (UInt256{1, 0}));
  EXPECT_LT((UInt256{1, 2}), (UInt256{1, 3}));
  EXPECT_GT((UInt256{2, 0}), (UInt256{1, kAllOnes}));
  EXPECT_EQ((UInt256{1, 2}), (UInt256{1, 2}));
}

TEST(Square, OfNarrowNumbers) {
  EXPECT_TRUE(Square(uint64_t{0}) == 0);
  EXPECT_TRUE(Square(uint64_t{1} << 63) == UInt128{1} << 126);
  EXPECT_TRUE(Square(~uint64_t{0}) == Wide(~uint64_t{0} - 1, 1));
}

TEST(Square, OfWideNumbers) {
  EXPECT_EQ(Square(UInt128{0}), (UInt256{0, 0}));
  EXPECT_EQ(Square(UInt128{3}), (UInt256{0, 9}));
  EXPECT_EQ(Square(UInt128{1} << 64), (UInt256{1, 0}));
  EXPECT_EQ(Square(UInt128{1} << 126), (UInt256{UInt128{1} << 124, 0}));
  const UInt128 largest = kAllOnes >> 1;  // 2^127 - 1, whose square is 2^254 - 2^128 + 1
  EXPECT_EQ(Square(largest), (UInt256{(UInt128{1} << 126) - 1, 1}));
}

RC_GTEST_PROP(SquareLaws, AsBitByBit, (uint64_t high, uint64_t low)) {
  const UInt128 x = Wide(high >> 1, low);
  RC_ASSERT((Square(x) == SquareBitByBit(x)));
}

RC_GTEST_PROP(SquareLaws, NarrowAndWideAgree, (uint64_t x)) {
  RC_ASSERT((Square(UInt128{x}) == UInt256{0, Square(x)}));
}

}  // namespace
}  // namespace strata::partition
