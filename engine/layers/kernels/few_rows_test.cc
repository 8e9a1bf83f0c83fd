#include "engine/layers/kernels/few_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "engine/layers/kernels/avx512.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;
using testing::Normal;
using testing::SameBits;

/// Runs with each instruction set that the kernels know.
class FewRowsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool wants_avx512 = std::string_view(GetParam()) == "avx512";
    if (!wants_avx512) without_.emplace();
    if (!(wants_avx512 ? HasAvx512() : HasAvx2())) GTEST_SKIP() << "no " << GetParam() << " here";
  }
  std::optional<WithoutAvx512> without_;
  const at::NoGradGuard no_grad_;
};
INSTANTIATE_TEST_SUITE_P(Registers, FewRowsTest, ::testing::Values("avx512", "avx2"));

// All numbers of rows, and sizes around the kernels' blocks of 16 and 8 columns and of 3 and 8
// rows.
TEST_P(FewRowsTest, EqualProductsInDouble) {
  for (int64_t rows = 1; rows <= few_rows::MostRows(); ++rows) {
    for (const auto& [n, k] : {std::tuple(1, 1), {3, 16}, {8, 17}, {10, 15}, {11, 64}, {25, 47}}) {
      const at::Tensor x = Normal({rows, k}, 1), dy = Normal({rows, n}, 2);
      const at::Tensor weight = Normal({n, k}, 3), bias = Normal({n}, 4);
      const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const at::Tensor product = wide(x).mm(wide(weight).t());
      EXPECT_LT(MaxDifference(few_rows::TimesTransposed(x, weight, std::nullopt), product), 3e-5)
          << rows << " " << n << " " << k;
      EXPECT_LT(MaxDifference(few_rows::TimesTransposed(x, weight, bias), product + bias), 3e-5)
          << rows << " " << n << " " << k;
      EXPECT_LT(MaxDifference(few_rows::Times(dy, weight), wide(dy).mm(wide(weight))), 3e-5)
          << rows << " " << n << " " << k;
    }
  }
}

TEST_P(FewRowsTest, BitsDependOnNoThreads) {
  const at::Tensor x = Normal({7, 1000}, 1), dy = Normal({7, 333}, 2),
                   weight = Normal({333, 1000}, 3);
  const at::Tensor y = few_rows::TimesTransposed(x, weight, std::nullopt);
  const at::Tensor dx = few_rows::Times(dy, weight);
  at::set_num_threads(2);
  EXPECT_TRUE(SameBits(few_rows::TimesTransposed(x, weight, std::nullopt), y));
  EXPECT_TRUE(SameBits(few_rows::Times(dy, weight), dx));
  at::set_num_threads(1);
}

TEST_P(FewRowsTest, BitsOfARowDependOnNoOtherRows) {
  const at::Tensor x = Normal({few_rows::MostRows(), 100}, 1), weight = Normal({50, 100}, 2);
  const at::Tensor all = few_rows::TimesTransposed(x, weight, std::nullopt);
  for (const int64_t rows : {1, 3, 5, 8, 11}) {
    if (rows > few_rows::MostRows()) break;
    const at::Tensor some = few_rows::TimesTransposed(x.narrow(0, 0, rows), weight, std::nullopt);
    EXPECT_TRUE(SameBits(some, all.narrow(0, 0, rows))) << rows;
  }
}

TEST_P(FewRowsTest, TakesTransposedRows) {
  const at::Tensor x = Normal({5, 20}, 1), dy = Normal({5, 30}, 2), weight = Normal({30, 20}, 3);
  const auto turned = [](const at::Tensor& t) { return t.t().contiguous().t(); };
  EXPECT_TRUE(SameBits(few_rows::TimesTransposed(turned(x), weight, std::nullopt),
                       few_rows::TimesTransposed(x, weight, std::nullopt)));
  EXPECT_TRUE(SameBits(few_rows::Times(turned(dy), weight), few_rows::Times(dy, weight)));
}

TEST_P(FewRowsTest, LeavesTheRestToOthers) {
  const at::Tensor matrix = at::ones({4, 4});
  EXPECT_TRUE(few_rows::Fits(at::ones({few_rows::MostRows(), 4}), matrix));
  EXPECT_FALSE(few_rows::Fits(at::ones({few_rows::MostRows() + 1, 4}), matrix));
  EXPECT_FALSE(few_rows::Fits(at::ones({0, 4}), matrix));
  EXPECT_FALSE(few_rows::Fits(at::ones({2, 4}, at::kDouble), matrix.to(at::kDouble)));
  EXPECT_FALSE(few_rows::Fits(at::ones({2, 2, 4}), matrix));
  EXPECT_FALSE(few_rows::Fits(at::ones({2, 4}), at::ones({4, 8}).t()));
  {
    const WithoutAvx2 plain;
    EXPECT_FALSE(few_rows::Fits(at::ones({2, 4}), matrix));
  }
  const at::AutoGradMode grad(true);
  EXPECT_FALSE(few_rows::Fits(at::ones({2, 4}), matrix));
}

}  // namespace
}  // namespace strata
