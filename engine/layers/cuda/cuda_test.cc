// Tests layers on a GPU against the same layers on the CPU, and random numbers on a GPU.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/rows.h"
#include "engine/layers/cuda/testing_kernels.h"
#include "engine/layers/documents.h"
#include "engine/layers/kernels/row_product.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::MaxDifference;
using testing::SameBits;
using testing::Trained;
using testing::TrainTwice;

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (GpuCount() == 0) GTEST_SKIP() << "there is no GPU here";
  }
};

LayerSpec Spec(const std::string& type, Value::Map args = {}) {
  return MakeLayer(type, {}, args, {}, "");
}

TEST_F(Cuda, LayersComputeWhatTheyComputeOnTheCpu) {
  const at::Tensor image = at::randn({2, 4, 8, 8}), sequence = at::randn({5, 2, 12});
  const std::vector<std::pair<LayerSpec, at::Tensor>> cases = {
      {Spec("Linear", {{"in_features", 12}, {"out_features", 7}}), sequence},
      {Spec("Conv2d", {{"in_channels", 4}, {"out_channels", 6}, {"kernel_size", 3}}), image},
      {Spec("ConvTranspose2d", {{"in_channels", 4}, {"out_channels", 6}, {"kernel_size", 3}}),
       image},
      {Spec("Embedding", {{"num_embeddings", 90}, {"embedding_dim", 6}, {"padding_idx", 3}}),
       at::arange(40) * 7 % 90},
      {Spec("BatchNorm2d", {{"num_features", 4}}), image},
      {Spec("GroupNorm", {{"num_groups", 2}, {"num_channels", 4}}), image},
      {Spec("LayerNorm", {{"normalized_shape", 12}}), sequence},
      {Spec("RMSNorm", {{"normalized_shape", 12}}), sequence},
      {Spec("MaxPool2d", {{"kernel_size", 2}}), image},
      {Spec("AdaptiveAvgPool2d", {{"output_size", 3}}), image},
      {Spec("TransformerEncoderLayer", {{"d_model", 12}, {"nhead", 3}, {"dropout", 0.0}}),
       sequence},
      {Spec("TransformerDecoderLayer",
            {{"d_model", 12}, {"nhead", 3}, {"dropout", 0.0}, {"causal", true}}),
       sequence},
  };
  for (const auto& [spec, input] : cases) {
    const Trained cpu = TrainTwice(spec, input, at::kCPU), gpu = TrainTwice(spec, input, at::kCUDA);
    // cuDNN computes in TF32, hence the large tolerance.
    const double tolerance =
        1e-2 * (1 + at::cat({cpu.grads, at::zeros({1})}).abs().max().item<double>());
    EXPECT_LE(MaxDifference(cpu.output, gpu.output), 1e-2) << spec.ToString();
    EXPECT_LE(MaxDifference(cpu.grads, gpu.grads), tolerance) << spec.ToString();
    if (cpu.input_grad.defined()) {
      EXPECT_LE(MaxDifference(cpu.input_grad, gpu.input_grad), tolerance) << spec.ToString();
    }
  }
}

TEST_F(Cuda, OurKernelsHaveAtensNumbersInFloat64AndTheSameBitsEachTime) {
  const auto run = [](const testing::KernelCase& c) {
    Tensors got = c.kernel(at::kCUDA);
    for (at::Tensor& tensor : got) tensor = tensor.detach().cpu();
    return got;
  };
  for (const testing::KernelCase& c : testing::KernelCases()) {
    const Tensors got = run(c), again = run(c);
    EXPECT_EQ(testing::DifferenceOf(c, got, c.reference()), "");
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(SameBits(got[i], again[i])) << c.name << ", tensor " << i;
    }
  }
}

/// The output and the input gradients of an attention on the device and in the type of `options`,
/// flattened and concatenated as float32 on the CPU.
at::Tensor Attended(const Tensors& inputs, at::TensorOptions options,
                    const std::function<at::Tensor(const Tensors&)>& attend) {
  RandomScope scope(5);
  Tensors leaves, all;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.to(options).detach().requires_grad_(true));
  }
  all.push_back(attend(leaves));
  all[0].mul(all[0]).sum().backward();
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  for (at::Tensor& one : all) one = one.detach().to(at::kCPU, at::kFloat).flatten();
  return at::cat(all);
}

/// Checks that the GPU's numbers differ from the CPU's by at most `tolerance`, and that every run
/// gives the same bits.
void ExpectTheSame(const at::Tensor& cpu, const std::function<at::Tensor()>& run,
                   double tolerance) {
  const at::Tensor gpu = run();
  if (cpu.defined()) {
    EXPECT_LE(MaxDifference(cpu, gpu), tolerance * (1 + cpu.abs().max().item<double>()));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(gpu, run()));
}

TEST_F(Cuda, AttentionHasTheCpusNumbersAndTheSameBitsEachTime) {
  for (const auto& [tokens, width] :
       {std::pair<int64_t, int64_t>{1030, 16}, {1030, 12}, {40, 16}}) {
    at::Tensor padding = at::ones({2, 1, 1, tokens}, at::kBool);
    padding[1].narrow(-1, tokens - 13, 13).fill_(false);
    const at::Tensor added = at::randn({3, tokens, tokens});
    const Tensors inputs = {at::randn({2, 3, tokens, width}), at::randn({2, 3, tokens, width}),
                            at::randn({2, 3, tokens, width})};
    for (const std::string mask : {"none", "causal", "padding", "added"}) {
      const auto attend = [&](const Tensors& x, double dropout) {
        std::optional<at::Tensor> seen;
        if (mask == "padding") seen = padding.to(x[0].device());
        if (mask == "added") seen = added.to(x[0].options().requires_grad(false));
        return at::scaled_dot_product_attention(x[0], x[1], x[2], seen, dropout, mask == "causal");
      };
      const at::Tensor cpu =
          Attended(inputs, at::kFloat, [&](const Tensors& x) { return attend(x, 0); });
      for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-2}, {at::kBFloat16, 5e-2}}) {
        for (const bool flash : {true, false}) {
          at::globalContext().setSDPUseFlash(flash);
          for (const double dropout : {0.0, 0.25}) {
            SCOPED_TRACE(
                Str(mask, " ", tokens, " ", width, " ", c10::toString(type), " ", flash, dropout));
            const auto run = [&] {
              return Attended(inputs, at::dtype(type).device(at::kCUDA),
                              [&](const Tensors& x) { return attend(x, dropout); });
            };
            ExpectTheSame(dropout == 0 ? cpu : at::Tensor(), run, tolerance);
          }
        }
        at::globalContext().setSDPUseFlash(true);
      }
    }
  }
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicFillUninitializedMemory());
}

TEST_F(Cuda, AttentionOfDocumentsHasTheCpusNumbersAndTheSameBitsEachTime) {
  const at::Tensor places = at::cat({at::arange(700), at::arange(30), at::arange(294),  // a row
                                     at::arange(1), at::arange(1023)})
                                .view({2, 1024});
  for (const int64_t width : {16, 64}) {
    const std::vector<int64_t> shape = {2, 3, 1024, width};
    const Tensors inputs = {at::randn(shape), at::randn(shape), at::randn(shape)};
    for (const bool causal : {false, true}) {
      const auto attend = [&](const Tensors& x, double dropout, const DocumentLimits& limits) {
        const Documents documents(places.to(x[0].device()), limits);
        const DocumentScope scope(&documents);
        return WithinDocuments(x[0], x[1], x[2], {}, causal,
                               [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const std::optional<at::Tensor>& mask, bool is_causal) {
                                 return at::scaled_dot_product_attention(q, k, v, mask, dropout,
                                                                         is_causal);
                               });
      };
      const at::Tensor cpu =
          Attended(inputs, at::kFloat, [&](const Tensors& x) { return attend(x, 0, {}); });
      for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-2}, {at::kBFloat16, 5e-2}}) {
        for (const DocumentLimits& limits : {DocumentLimits{}, {3, 1023}, {9, 1024}}) {
          for (const double dropout : {0.0, 0.25}) {
            SCOPED_TRACE(Str(width, " ", causal, " ", c10::toString(type), " ", limits.in_row, " ",
                             dropout));
            const auto run = [&] {
              return Attended(inputs, at::dtype(type).device(at::kCUDA),
                              [&](const Tensors& x) { return attend(x, dropout, limits); });
            };
            ExpectTheSame(dropout == 0 ? cpu : at::Tensor(), run, tolerance);
          }
        }
      }
    }
  }
}

TEST_F(Cuda, WeightGradientsInHalfPrecisionAreAddedUpInFloat32) {
  const at::TensorOptions half = at::dtype(at::kBFloat16).device(at::kCUDA);
  const at::Tensor x = at::randn({300, 24}).to(half), dy = at::randn({300, 40}).to(half);
  const at::Tensor exact = dy.to(at::kDouble).t().mm(x.to(at::kDouble));
  RowProduct product = {dy,
                        x,
                        at::full({40, 24}, 2.0, half.dtype(at::kFloat)),
                        {},
                        std::make_shared<StaleGradients>()};
  product.Add();
  EXPECT_LE((product.dweight - 2 - exact).abs().max().item<double>(), 1e-4);
  product.stale->Mark(product.dweight);
  product.Add();
  EXPECT_LE((product.dweight - exact).abs().max().item<double>(), 1e-4);
}

TEST_F(Cuda, AttentionThatKernelsDoNotTakeStoresItsScores) {
  const Tensors inputs = {at::randn({2, 4, 50, 8}), at::randn({2, 2, 50, 8}),
                          at::randn({2, 2, 50, 8}), at::randn({50, 50})};
  const auto grouped = [](const Tensors& x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, false, {}, true);
  };
  const auto learned_mask = [](const Tensors& x) {
    return at::scaled_dot_product_attention(x[1], x[1], x[2], x[3], 0, false);
  };
  const auto without_heads = [](const Tensors& x) {
    return at::scaled_dot_product_attention(x[3], x[3], x[3], {}, 0, false, 0.3);
  };
  const std::function<at::Tensor(const Tensors&)> all[] = {grouped, learned_mask, without_heads};
  for (const auto& attend : all) {
    const auto used = [&](at::TensorOptions options) {
      return Attended(inputs, options, [&](const Tensors& x) {
        return attend(x) + 0 * (x[0].sum() + x[1].sum() + x[2].sum() + x[3].sum());
      });
    };
    ExpectTheSame(
        used(at::kFloat), [&] { return used(at::dtype(at::kFloat).device(at::kCUDA)); }, 1e-2);
  }
}

TEST_F(Cuda, AttentionOfOneHeadOfOneFeatureRuns) {
  const Tensors inputs = {at::randn({4, 5, 1, 1}), at::randn({4, 5, 1, 1}),
                          at::randn({4, 5, 1, 1})};
  const auto used = [&](at::TensorOptions options) {
    return Attended(inputs, options, [](const Tensors& x) {
      return at::scaled_dot_product_attention(x[0].transpose(1, 2), x[1].transpose(1, 2),
                                              x[2].transpose(1, 2));
    });
  };
  ExpectTheSame(
      used(at::kFloat), [&] { return used(at::dtype(at::kFloat).device(at::kCUDA)); }, 1e-2);
}

TEST_F(Cuda, AWordOfHundredsIsAddedUpInOneOrder) {
  const at::Tensor words = at::arange(5000).remainder(10);
  for (const bool by_freq : {false, true}) {
    const LayerSpec spec = Spec("Embedding", {{"num_embeddings", 10},
                                              {"embedding_dim", 33},
                                              {"padding_idx", 3},
                                              {"scale_grad_by_freq", by_freq}});
    const Trained cpu = TrainTwice(spec, words, at::kCPU), gpu = TrainTwice(spec, words, at::kCUDA);
    EXPECT_LE(MaxDifference(cpu.grads, gpu.grads), 1e-3 * cpu.grads.abs().max().item<double>());
    for (int again = 0; again < 5; ++again) {
      EXPECT_TRUE(SameBits(gpu.grads, TrainTwice(spec, words, at::kCUDA).grads));
    }
  }
}

TEST_F(Cuda, ALinearLayerOfAnOddWidthHasTheCpusNumbers) {
  const int64_t rows = 512, in = 128, out = 16411;
  ASSERT_GT(MissingOfRows(at::kBFloat16, rows, out, in), 0);
  const Tensors inputs = {at::randn({2, rows / 2, in}), at::randn({out, in}), at::randn({out})};
  for (const bool bias : {false, true}) {
    const auto linear = [&](const Tensors& x) {
      const at::Tensor y =
          at::linear(x[0], x[1], bias ? std::make_optional(x[2]) : std::nullopt) + 0 * x[2].sum();
      EXPECT_TRUE(y.is_contiguous());
      return y;
    };
    const at::Tensor cpu = Attended(inputs, at::kFloat, linear);
    const auto run = [&] {
      return Attended(inputs, at::dtype(at::kBFloat16).device(at::kCUDA), linear);
    };
    ExpectTheSame(cpu, run, 2e-2);
  }
}

TEST_F(Cuda, RowsLackWhatMatrixUnitsWant) {
  EXPECT_EQ(MissingOfRows(at::kHalf, 8192, 50257, 768), 7);
  EXPECT_EQ(MissingOfRows(at::kHalf, 8192, 50264, 768), 0);
  EXPECT_EQ(MissingOfRows(at::kHalf, 8, 50257, 768), 0) << "a small product";
  EXPECT_EQ(MissingOfRows(at::kHalf, 8192, 50257, 32), 0) << "the copy would take as long";
  EXPECT_EQ(MissingOfRows(at::kFloat, 8192, 50257, 768), 0);
  at::globalContext().setAllowTF32CuBLAS(true);
  EXPECT_EQ(MissingOfRows(at::kFloat, 8192, 50257, 768), 3);
  const LayerSpec spec = Spec("Linear", {{"in_features", 128}, {"out_features", 16411}});
  const at::Tensor input = at::randn({512, 128});
  const Trained cpu = TrainTwice(spec, input, at::kCPU), gpu = TrainTwice(spec, input, at::kCUDA);
  at::globalContext().setAllowTF32CuBLAS(false);
  EXPECT_LE(MaxDifference(cpu.output, gpu.output), 1e-2);
  EXPECT_LE(MaxDifference(cpu.grads, gpu.grads), 2e-3 * cpu.grads.abs().max().item<double>());
  EXPECT_LE(MaxDifference(cpu.input_grad, gpu.input_grad),
            2e-3 * cpu.input_grad.abs().max().item<double>());
}

TEST_F(Cuda, WhatIsDrawnInASplitScopeDoesNotMoveItsParent) {
  const c10::Device device(at::kCUDA, 0);
  const auto options = at::TensorOptions(device);
  const auto draw = [&](int64_t inside) {
    RandomScope scope(3);
    at::rand({10}, options);
    at::Tensor inner;
    {
      const RandomScope own(SplitSeed(device));
      inner = at::rand({inside}, options);
    }
    return std::pair{inner.cpu(), at::rand({50}, options).cpu()};
  };
  const auto [few, behind_few] = draw(7);
  const auto [many, behind_many] = draw(7000);
  EXPECT_TRUE(SameBits(behind_few, behind_many));
  EXPECT_FALSE(SameBits(behind_many, many.narrow(0, 0, 50)));
}

TEST_F(Cuda, AScopeDecidesWhatIsDrawnWhateverTheDefaultGeneratorDoes) {
  const auto options = at::TensorOptions(at::kCUDA);
  const at::Tensor heads = at::randn({1, 2, 10, 8}, options);
  const auto draw = [&](uint64_t seed) {
    at::rand({10}, options);  // moves the default generator
    RandomScope scope(seed);
    return at::cat({at::rand({50}, options), at::empty({50}, options).normal_(),
                    at::ones({50}, options).bernoulli(0.5),
                    at::dropout(at::ones({50}, options), 0.5, true),
                    at::scaled_dot_product_attention(heads, heads, heads, {}, 0.5).flatten()});
  };
  EXPECT_TRUE(SameBits(draw(3).cpu(), draw(3).cpu()));
  EXPECT_FALSE(SameBits(draw(3).cpu(), draw(4).cpu()));
}

TEST_F(Cuda, LayersWithDropoutDrawFromTheScope) {
  for (const LayerSpec& spec :
       {Spec("Dropout"),
        Spec("MultiheadAttention", {{"embed_dim", 12}, {"num_heads", 3}, {"dropout", 0.5}}),
        Spec("TransformerEncoderLayer", {{"d_model", 12}, {"nhead", 3}})}) {
    const auto layer = BuildLayer(spec, nullptr);
    FlatBuffers flat(*layer, at::kCUDA);
    const at::Tensor x = at::randn({5, 2, 12}).cuda();
    const auto run = [&](uint64_t seed) {
      const at::NoGradGuard no_grad;
      at::rand({10}, x.options());
      RandomScope scope(seed);
      return layer->Forward({x}, testing::TrainingPass())[0].cpu();
    };
    EXPECT_TRUE(SameBits(run(3), run(3))) << spec.ToString();
    EXPECT_FALSE(SameBits(run(3), run(4))) << spec.ToString();
  }
}

}  // namespace
}  // namespace strata
