// Layers against ordinary autograd: outputs, input gradients and weight gradients, whole and split.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::MaxDifference;
using testing::SameBits;
using testing::TrainingPass;

LayerSpec SpecOf(const std::string& type, Value::Map args) {
  LayerSpec spec;
  spec.type = type;
  spec.args = Value::MakeMap(std::move(args));
  return spec;
}

LayerSpec LinearSpec(int in, int out, bool bias) {
  return SpecOf("Linear", {{"in_features", in}, {"out_features", out}, {"bias", bias}});
}

std::unique_ptr<Layer> Build(const LayerSpec& spec, uint64_t seed = 1) {
  RandomScope scope(seed);
  return BuildLayer(spec, nullptr);
}

TEST(Linear, SmokeAgainstAutograd) {
  auto ours = Build(LinearSpec(20, 30, true));
  auto theirs = Build(LinearSpec(20, 30, true));
  FlatBuffers flat(*ours), flat2(*theirs);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({8, 20}).set_requires_grad(true);
    const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
    const at::Tensor dy = at::randn({8, 30});
    const at::Tensor y = ours->Forward({x}, TrainingPass())[0];
    const at::Tensor y2 = theirs->Forward({x2}, Pass())[0];
    y.backward(dy);
    y2.backward(dy);
    EXPECT_TRUE(SameBits(y, y2));
    EXPECT_TRUE(SameBits(x.grad(), x2.grad()));
    EXPECT_TRUE(SameBits(flat.grads, flat2.grads));
  }
}

}  // namespace
}  // namespace strata
