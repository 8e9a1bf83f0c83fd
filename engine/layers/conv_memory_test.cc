// Compares the predicted scratch memory of convolutions with what their kernels allocate.
#include "engine/layers/conv_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/layer_tape.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

struct Case {
  std::vector<int64_t> input;
  Value::List arguments;
  Value::Map named = {};
  const char* type = "Conv2d";
};

/// All kernels, at two sizes where the kernel depends on the size.
std::vector<Case> Cases() {
  const auto ints = [](const std::vector<int64_t>& list) { return Value::IntList(list); };
  return {
      // ATen's own kernel
      {{1, 3, 64, 64}, {3, 16, 3}, {{"padding", 1}}},
      {{1, 32, 16, 16}, {32, 64, 3}, {{"padding", 1}, {"stride", 2}}},
      {{8, 32, 16, 16}, {32, 64, 1}},
      {{2, 16, 8, 32, 32}, {16, 32, 1}, {}, "Conv3d"},
      {{1, 16, 32, 32}, {16, 8, 2}, {{"stride", 2}}, "ConvTranspose2d"},
      // oneDNN
      {{1, 3, 256, 256}, {3, 16, 3}, {{"padding", 1}}},
      {{1, 16, 64, 64}, {16, 16, 3}, {{"padding", 1}}},
      {{4, 16, 128, 128}, {16, 16, 3}, {{"padding", 1}}},
      {{1, 16, 256, 256}, {16, 16, 3}, {{"padding", 1}, {"stride", 2}}},
      {{2, 16, 64, 32}, {16, 16, 3}, {{"padding", 1}, {"stride", ints({2, 1})}}},
      {{16, 32, 16, 16}, {32, 64, 1}},
      {{4, 64, 64, 64}, {64, 128, 1}, {{"stride", 2}}},
      {{4, 20, 64, 64}, {20, 40, 3}, {{"padding", 1}}},
      {{8, 64, 33, 17}, {64, 128, 3}},
      {{8, 16, 64, 64}, {16, 16, 3}, {{"padding", 2}, {"dilation", 2}}},
      {{8, 16, 64, 64}, {16, 16, 3}, {{"padding", 1}, {"padding_mode", "reflect"}}},
      {{4, 32, 64, 64}, {32, 32, 3}, {{"padding", 1}, {"groups", 32}}},
      {{4, 32, 64, 64}, {32, 64, 3}, {{"padding", 1}, {"groups", 4}}},
      {{8, 96, 27, 27}, {96, 256, 5}, {{"padding", 2}}},
      {{8, 64, 14, 14}, {64, 128, 5}, {{"padding", 2}, {"stride", 2}}},
      {{8, 3, 64, 64}, {3, 20, 3}, {{"padding", 1}, {"stride", 2}}},
      {{4, 32, 4096}, {32, 32, 3}, {{"padding", 1}}, "Conv1d"},
      {{2, 16, 16, 32, 32}, {16, 32, 3}, {{"padding", 1}, {"bias", false}}, "Conv3d"},
      {{4, 32, 64, 64}, {32, 16, 2}, {{"stride", 2}}, "ConvTranspose2d"},
      {{4, 32, 64, 64}, {32, 16, 3}, {{"padding", 1}}, "ConvTranspose2d"},
      {{4, 32, 1024}, {32, 16, 4}, {{"stride", 2}, {"padding", 1}}, "ConvTranspose1d"},
      // Winograd
      {{1, 64, 64, 64}, {64, 64, 3}, {{"padding", 1}}},
      {{8, 384, 13, 13}, {384, 256, 3}, {{"padding", "same"}}},
      {{8, 512, 4, 4}, {512, 512, 3}, {{"padding", 1}}},
      // an unfolded weight gradient
      {{8, 256, 8, 8}, {256, 512, 3}, {{"padding", 1}, {"stride", 2}}},
      {{16, 1024, 4, 4}, {1024, 2048, 1}},
  };
}

constexpr int kAccount = 1;

/// The most bytes that tensors take while f runs, beyond those before.
template <class F>
double PeakOf(const F& f) {
  const int64_t before = MemoryOf(kAccount).current;
  ResetPeakMemory(kAccount);
  f();
  return static_cast<double>(MemoryOf(kAccount).peak - before);
}

TEST(ConvMemory, IsWhatTheKernelsAllocate) {
  InstallAllocator();
  SetMemoryAccount(kAccount);
  for (const Case& c : Cases()) {
    const LayerSpec spec = MakeLayer(c.type, c.arguments, c.named, {}, "");
    SCOPED_TRACE(Str(spec.ToString(), " of ", FormatShape(c.input)));
    const auto layer = BuildLayer(spec, nullptr);
    const testing::FlatBuffers buffers(*layer);
    const at::Tensor x = testing::Normal(c.input, 1).requires_grad_(true);
    const Pass pass = testing::TrainingPass();
    Tensors y;
    const double forward = PeakOf([&] { y = layer->Forward({x}, pass); });
    const at::Tensor dy = at::ones_like(y[0]);
    pass.weight_gradients->set_deferred(true);
    const double input_grad = PeakOf([&] { y[0].backward(dy); });
    const double weight_grad = PeakOf([&] { pass.weight_gradients->Run(); });

    LayerTape tape({{c.input, DType::kFloat32}}, 1, 1, nullptr, DType::kFloat32, {.is_cpu = true});
    const LayerCost cost =
        tape.Finish(TraceLayer(tape, spec, tape.inputs(), {{y[0].sizes().vec(), DType::kFloat32}}));
    const auto X = static_cast<double>(x.nbytes()), Y = static_cast<double>(y[0].nbytes());
    // With AVX2, oneDNN's kernels for dilated windows and for 3 dims need less than predicted.
    const double most = HasAvx512() ? 1.1 : 1.5;
    const auto expect = [&](const char* what, double predicted, double measured) {
      EXPECT_GT(predicted / measured, 0.9) << what << ": " << predicted << " " << measured;
      EXPECT_LT(predicted / measured, most) << what << ": " << predicted << " " << measured;
    };
    expect("forward", X + Y + static_cast<double>(cost.forward_scratch), X + forward);
    expect("weight gradient", 2 * X + Y + static_cast<double>(cost.backward_scratch),
           2 * X + Y + weight_grad);
    const int64_t backward = std::max(cost.backward_scratch, cost.input_grad_scratch);
    expect("backward", 2 * X + Y + static_cast<double>(backward),
           X + Y + std::max(input_grad, X + weight_grad));
  }
  SetMemoryAccount(0);
}

}  // namespace
}  // namespace strata
