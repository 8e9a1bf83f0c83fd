#include "engine/comm/specs.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace strata {
namespace {

TEST(SpecsTest, TensorsAreWhatTheirSpecsSay) {
  const TensorSpecs specs = {{{2, 3}, DType::kFloat32}, {{}, DType::kInt64}};
  const auto tensors = EmptyTensors(specs, at::kCPU);
  EXPECT_EQ(SpecsOf(tensors), specs);
  EXPECT_TRUE(Fits(tensors, specs));
  EXPECT_FALSE(Fits({tensors[0]}, specs));
  EXPECT_FALSE(Fits({tensors[1], tensors[0]}, specs));
  EXPECT_FALSE(Fits({at::empty({2, 3}, at::kDouble), tensors[1]}, specs));
}

TEST(SpecsTest, AnUnknownTypeIsAnError) {
  EXPECT_THROW(SpecOf(at::empty({1}, at::kComplexFloat)), ConfigError);
}

}  // namespace
}  // namespace strata
