#include "engine/spec/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/spec/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

bool Equal(const Batch& a, const Batch& b) {
  return a.size == b.size && a.micro_batches == b.micro_batches &&
         a.micro_batch_size == b.micro_batch_size;
}

TEST(ResolveBatch, TwoOfThreeSuffice) {
  const Batch whole = {32, 4, 8};
  EXPECT_TRUE(Equal(ResolveBatch({0, 4, 8}), whole));
  EXPECT_TRUE(Equal(ResolveBatch({32, 0, 8}), whole));
  EXPECT_TRUE(Equal(ResolveBatch({32, 4, 0}), whole));
  EXPECT_TRUE(Equal(ResolveBatch(whole), whole));
}

RC_GTEST_PROP(ResolveBatch, AnyTwoGiveTheThird, ()) {
  const auto m = *rc::gen::inRange<int64_t>(1, 1000);
  const auto each = *rc::gen::inRange<int64_t>(1, 1000);
  const Batch whole = {m * each, m, each};
  RC_ASSERT(Equal(ResolveBatch({0, m, each}), whole));
  RC_ASSERT(Equal(ResolveBatch({m * each, 0, each}), whole));
  RC_ASSERT(Equal(ResolveBatch({m * each, m, 0}), whole));
}

TEST(ResolveBatch, FewerThanTwoAreTooFew) {
  for (const Batch& batch : {Batch{}, Batch{8, 0, 0}, Batch{0, 8, 0}, Batch{0, 0, 8}}) {
    EXPECT_EQ(ErrorOf([&] { ResolveBatch(batch); }),
              "batch needs two of size, micro_batches and micro_batch_size");
  }
}

TEST(ResolveBatch, ContradictionsNameAllThree) {
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 4, 8});
            }),
            "batch: size 33 is not micro_batches 4 * micro_batch_size 8; two of the three suffice");
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 4, 0});
            }),
            "batch: size 33 is not divisible by micro_batches 4");
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 0, 8});
            }),
            "batch: size 33 is not divisible by micro_batch_size 8");
}

}  // namespace
}  // namespace strata
