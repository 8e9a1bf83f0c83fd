// Compares our kernels, run on the CPU (on_cpu.h), with ATen in float64: in each order of threads,
// with equal bits. Then breaks each kernel on purpose, and tests that this comparison notices it.
// Then tests that layers use the kernels.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/column_sums.h"
#include "engine/layers/cuda/dropout_kernels.h"
#include "engine/layers/cuda/kernel_sources.h"
#include "engine/layers/cuda/launch.h"
#include "engine/layers/cuda/llama_kernels.h"
#include "engine/layers/cuda/norm_kernels.h"
#include "engine/layers/cuda/on_cpu.h"
#include "engine/layers/cuda/testing_kernels.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/linear.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using on_cpu::Order;
using testing::KernelCase;
using testing::SameBits;
using testing::Trained;
using testing::TrainTwice;

/// While it lives, tensors on the CPU are for the kernels.
class OnCpu {
 public:
  explicit OnCpu(Order order = Order::kUp, const std::vector<on_cpu::Kernel>* kernels = nullptr)
      : launcher_(order, kernels) {
    SetKernelLauncher(at::kCPU, &launcher_);
  }
  ~OnCpu() { SetKernelLauncher(at::kCPU, nullptr); }
  int launches() const { return launcher_.launches(); }

 private:
  on_cpu::Launcher launcher_;
};

/// What is wrong with a kernel, in any order of threads; "" = nothing.
std::string ErrorOf(const KernelCase& c, const std::vector<on_cpu::Kernel>* kernels = nullptr) {
  const Tensors wanted = c.reference();
  Tensors first;
  for (const Order order : {Order::kUp, Order::kDown, Order::kRandom}) {
    Tensors got;
    try {
      const OnCpu on_cpu(order, kernels);
      got = c.kernel(at::kCPU);
    } catch (const std::runtime_error& error) {
      return Str(c.name, ": ", error.what());
    }
    if (order == Order::kUp) first = got;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!SameBits(got.at(i), first[i])) return Str(c.name, ": tensor ", i, ": other bits");
    }
    const std::string difference = testing::DifferenceOf(c, got, wanted);
    if (!difference.empty()) return difference;
  }
  return "";
}

TEST(KernelsTest, HaveAtensNumbersInFloat64AndEqualBitsInEachOrder) {
  for (const KernelCase& c : testing::KernelCases()) EXPECT_EQ(ErrorOf(c), "");
}

/// So it does not matter which of them a plan runs.
TEST(KernelsTest, ASumWithItsNormHasTheBitsOfOneAfterTheOther) {
  const OnCpu on_cpu;
  for (const at::ScalarType type : testing::kTypes) {
    const Parameter weight = {.name = "weight", .value = testing::Leaf(testing::Normal({24}, 1))};
    const NormCall call = {.width = 24, .weight = &weight, .eps = 1e-5};
    const auto run = [&](bool together) {
      weight.value.mutable_grad().reset();
      const at::Tensor x = testing::Leaf(testing::Normal({50, 24}, 2).to(type));
      const at::Tensor f = testing::Leaf(testing::Normal({50, 24}, 3).to(type));
      const SumCall sum = {x, f, {0.2, 5}};
      SumAndNorm both;
      if (together) {
        both = SumAndNormByKernel(sum, call, Pass()).value();
      } else {
        both.sum = SumByKernel(sum);
        both.norm = NormByKernel(both.sum, call, Pass()).value();
      }
      const at::Tensor y = both.norm.mul(both.norm).add(both.sum.mul(3));
      y.sum().backward();
      return Tensors{both.sum, both.norm, x.grad(), f.grad(), weight.value.grad()};
    };
    const Tensors together = run(true), apart = run(false);
    for (size_t i = 0; i < apart.size(); ++i) {
      EXPECT_TRUE(SameBits(together[i], apart[i])) << type << ", tensor " << i;
    }
  }
}

TEST(KernelsTest, TheTableIsThatOfTheCpu) {
  std::vector<std::string> names, on_cpu;
  for (const KernelEntry& kernel : Kernels()) {
    for (int element = 0; element < 3; ++element) names.push_back(kernel.name);
  }
  for (const on_cpu::Kernel& kernel : *on_cpu::strata_kernels_on_cpu()) {
    on_cpu.push_back(kernel.name);
  }
  EXPECT_EQ(names, on_cpu);
}

// ---- Mutants

struct Mutant {
  const char* file;
  const char* text;  ///< is replaced where it is first
  const char* by;
  const char* cases;  ///< the prefix of the cases that must notice it
};

constexpr Mutant kMutants[] = {
    {"common.cuh", "__syncthreads();\n  a = b = 0;", "a = b = 0;", "layer_norm"},
    {"common.cuh", "__syncthreads();  // all", "// all", "layer_norm"},
    {"common.cuh", "0xffffffffu", "0x7fffffffu", "layer_norm"},
    {"common.cuh", "step = kWarp / 2", "step = kWarp / 4", "layer_norm"},
    {"common.cuh", "if (k < count) to[k]", "if (k <= count) to[k]", "swiglu"},
    {"column_sums.cu", "__syncthreads();", "", "column_sums"},
    {"column_sums.cu", "step >= kPacks", "step > kPacks", "column_sums"},
    {"column_sums.cu", "aligned && count == kPack", "count == kPack", "column_sums"},
    {"column_sums.cu", "column >= columns", "column > columns", "column_sums"},
    {"norm.cu", "__syncthreads();", "", "rms_norm"},
    {"norm.cu", "column < columns", "column <= columns", "rms_norm"},
    {"norm.cu", "n % kPack == 0 && count > 0", "count > 0", "rms_norm"},
    {"norm.cu", "row < end;", "row <= end;", "rms_norm"},
    {"norm.cu", "partial, at + n", "partial, at + n - 1", "layer_norm"},
    {"norm.cu", "- mean_g", "", "layer_norm"},
    {"norm.cu", "Plus(v[k], dropped[k])", "v[k]", "sum of"},
    {"norm.cu", "seed, keep, at, dropped", "seed, keep, c.first, dropped", "sum of"},
    {"norm.cu", "Plus(Rounded<Element>(g[k]), xhat[k])", "g[k]", "sum of"},
    {"norm.cu", "seed, keep, at, g", "seed + 1, keep, at, g", "sum of"},
    {"common.cuh", "i / 4 + part", "i / 4", "dropout"},
    {"common.cuh", "(i + k) / 4).v", "i / 4).v", "sum of"},
    {"common.cuh", "round < 10", "round < 9", "dropout"},
    {"dropout.cu", "if (x != nullptr)", "if (false)", "dropout"},
    {"adamw.cu", "aligned = here == kPack", "aligned = true", "adamw"},
    {"adamw.cu", "keep_square * v[k] +", "", "adamw"},
    {"swiglu.cu", "* (1 + g[k] * (1 - sigmoid))", "", "swiglu"},
    {"swiglu.cu", "i / width * stride", "i / width * width", "swiglu of halves"},
    {"swiglu.cu", "halves ? dgate : dup, halves ? width : 0", "halves ? dgate : dup, 0",
     "swiglu of"},
    {"unpack.cu", "i % 2 == 0 ? both >> 4", "i % 2 == 1 ? both >> 4", "unpack nf4"},
    {"unpack.cu", "0.7229568362236023f", "0.7229f", "unpack nf4"},
    {"unpack.cu", "i / kBlock", "0", "unpack nf4"},
    {"unpack.cu", "own.count == kPack", "true", "unpack nf4"},
    {"unpack.cu", "const signed char code = static_cast<signed char>",
     "const unsigned char code = static_cast<unsigned char>", "unpack int8"},
    {"unpack.cu", "(first + own.begin) % columns", "first % columns", "unpack int8"},
    {"unpack.cu", "++column == columns", "column == columns", "unpack int8"},
    {"rotary.cu", "token * y_token_stride", "token * token_stride", "rotate"},
    {"rotary.cu", "&& head < heads", "", "rotate"},
    {"rotary.cu", "b[k] = right * cosine[k] + sign *", "b[k] = right * cosine[k] +", "rotate"},
};

constexpr const char* kFolder = "engine/layers/cuda/";

/// Compiles the kernels with the mutant in the place of its file, and loads them.
const std::vector<on_cpu::Kernel>* Compiled(const Mutant& mutant, int number) {
  std::ifstream file(Str(kFolder, mutant.file));
  std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t place = text.find(mutant.text);
  EXPECT_NE(place, std::string::npos) << mutant.file << " has no " << mutant.text;
  if (place == std::string::npos) return nullptr;
  text.replace(place, std::string(mutant.text).size(), mutant.by);
  const std::string root = Str(std::getenv("TEST_TMPDIR"), "/mutant", number);
  const std::string library = root + "/kernels.so";
  EXPECT_EQ(std::system(Str("mkdir -p ", root, "/", kFolder).c_str()), 0);
  std::ofstream(Str(root, "/", kFolder, mutant.file)) << text;
  // A static variable of an inline function must not be shared with the program or the mutants
  // before.
  const std::string command =
      Str("c++ -std=c++20 -O0 -w -shared -fPIC -fno-gnu-unique -Wl,-Bsymbolic -I", root, " -I. ",
          kFolder, "on_cpu.cc -o ", library);
  EXPECT_EQ(std::system(command.c_str()), 0);
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(loaded, nullptr) << dlerror();
  if (!loaded) return nullptr;
  using Entry = decltype(&on_cpu::strata_kernels_on_cpu);
  return reinterpret_cast<Entry>(dlsym(loaded, "strata_kernels_on_cpu"))();
}

TEST(KernelsTest, MutantsAreNoticed) {
  const std::vector<KernelCase> cases = testing::KernelCases();
  int number = 0;
  const auto error_of = [&](const Mutant& mutant) {
    const std::vector<on_cpu::Kernel>* const kernels = Compiled(mutant, ++number);
    std::string error;
    for (const KernelCase& c : cases) {
      if (!kernels || !error.empty()) break;
      if (c.name.starts_with(mutant.cases)) error = ErrorOf(c, kernels);
    }
    return error;
  };
  // What notices mutants has nothing to say about the kernels themselves, compiled likewise.
  for (const char* const sound : {"layer_norm 33", "sum of", "column_sums 9"}) {
    EXPECT_EQ(error_of({"common.cuh", "kWarp = 32", "kWarp = 32", sound}), "");
  }
  for (const Mutant& mutant : kMutants) {
    const std::string error = error_of(mutant);
    EXPECT_NE(error, "") << mutant.file << ": " << mutant.text << " -> " << mutant.by;
    std::printf("%s, \"%s\" -> \"%s\": %s\n", mutant.file, mutant.text, mutant.by, error.c_str());
  }
}

// ---- Layers

/// One launch; the CPU's own code gives the same bits.
TEST(KernelsTest, PackedWeightsUseThem) {
  for (const Packing packing : {Packing::kNf4, Packing::kInt8}) {
    PackedWeight weight(packing, 30, 70);
    weight.Pack(testing::Normal({30, 70}, 1));
    for (const at::ScalarType type : testing::kTypes) {
      const at::Tensor by_cpu = weight.Dense(type);
      const OnCpu on_cpu;
      EXPECT_TRUE(SameBits(weight.Dense(type), by_cpu)) << PackingName(packing) << type;
      EXPECT_EQ(on_cpu.launches(), 1);
    }
  }
}

TEST(KernelsTest, LayersUseThem) {
  struct Used {
    LayerSpec spec;
    std::vector<int64_t> input;
    int launches;  ///< of two passes
  };
  const auto spec = [](const char* type, Value::Map args) {
    return MakeLayer(type, {}, args, {}, "");
  };
  const Value::Map attention = {
      {"dim", 32}, {"num_heads", 4}, {"num_kv_heads", 2}, {"rope_theta", 10000.0}};
  const auto holding = [](const char* type, std::vector<LayerSpec> children) {
    return MakeLayer(type, {}, {}, std::move(children), "");
  };
  const LayerSpec norm = spec("LayerNorm", {{"normalized_shape", 24}});
  const auto encoder = [](bool norm_first) {
    return Value::Map{{"d_model", 24}, {"nhead", 3}, {"dropout", 0.0}, {"norm_first", norm_first}};
  };
  const Used all[] = {
      {spec("LayerNorm", {{"normalized_shape", Value::IntList({24})}}), {3, 5, 24}, 6},
      {spec("LayerNorm", {{"normalized_shape", Value::IntList({3, 5})}}), {4, 3, 5}, 6},
      {spec("LayerNorm", {{"normalized_shape", 24}, {"elementwise_affine", false}}), {5, 24}, 4},
      {spec("RMSNorm", {{"normalized_shape", 24}}), {3, 5, 24}, 6},
      {spec("SwiGLU", {{"dim", 16}, {"hidden", 24}}), {2, 5, 16}, 4},
      {spec("RotaryEmbedding", {{"dim", 16}}), {2, 3, 5, 16}, 4},
      {spec("GroupedQueryAttention", attention), {2, 6, 32}, 8},
      // Two norms and a sum forward, one of them together; four backward.
      {holding("Sequential", {holding("Residual", {norm}), norm}), {3, 5, 24}, 12},
      {holding("Sequential", {holding("Residual", {norm}), spec("Identity", {}), norm}),
       {3, 5, 24},
       14},
      {spec("TransformerEncoderLayer", encoder(false)), {3, 2, 24}, 20},
      {spec("TransformerEncoderLayer", encoder(true)), {3, 2, 24}, 22}};
  for (const Used& used : all) {
    const at::Tensor input = testing::Normal(used.input, 5);
    const Trained without = TrainTwice(used.spec, input);
    const OnCpu on_cpu;
    const Trained with = TrainTwice(used.spec, input);
    EXPECT_EQ(on_cpu.launches(), used.launches) << used.spec.ToString();
    const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_LE(testing::MaxDifference(a, b), 1e-5 * (1 + b.abs().max().item<double>()))
          << used.spec.ToString();
    };
    near(with.output, without.output);
    near(with.input_grad, without.input_grad);
    if (with.grads.numel() > 0) near(with.grads, without.grads);
  }
}

/// The weights of a SwiGLU's first two layers are joined if they lie side by side and both learn.
TEST(KernelsTest, WeightsSideBySideAreJoined) {
  const RandomScope scope(1);
  const std::unique_ptr<Layer> gate = NewLinear(16, 8, /*bias=*/false);
  const std::unique_ptr<Layer> up = NewLinear(16, 8, /*bias=*/false);
  Layer* const both[] = {gate.get(), up.get()};
  EXPECT_FALSE(JoinedWeights(both)) << "no gradients";
  const at::Tensor values = at::arange(256, at::kFloat), grads = values.neg();
  const auto place = [&](Layer& layer, int64_t begin) {
    Parameter& weight = layer.parameters()[0];
    const auto part = [&](const at::Tensor& of) { return of.narrow(0, begin, 128).view({8, 16}); };
    weight.value = part(values).variable_data().set_requires_grad(true);
    weight.grad = part(grads);
  };
  place(*gate, 0);
  place(*up, 128);
  const std::optional<Parameter> joined = JoinedWeights(both);
  ASSERT_TRUE(joined);
  EXPECT_TRUE(SameBits(joined->value, values.view({16, 16})));
  EXPECT_EQ(joined->grad.const_data_ptr(), grads.const_data_ptr());
  EXPECT_TRUE(joined->value.is_leaf() && joined->value.requires_grad());
  up->parameters()[0].frozen = true;
  EXPECT_FALSE(JoinedWeights(both));
  up->parameters()[0].frozen = false;
  up->parameters()[0].grad = up->parameters()[0].grad.clone();
  EXPECT_FALSE(JoinedWeights(both));
  place(*gate, 128);
  place(*up, 0);
  EXPECT_FALSE(JoinedWeights(both)) << "in the other order";
}

TEST(KernelsTest, TheVariableTurnsThemOff) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, which reads the variable anew
  const auto ask = [](const char* value) {
    ::setenv("STRATA_KERNELS", value, 1);
    const OnCpu on_cpu;
    try {
      std::_Exit(KernelsFor(at::ones({1})) ? 1 : 0);
    } catch (const ConfigError& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(2);
    }
  };
  EXPECT_EXIT(ask("aten"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ask("own"), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(ask("fast"), ::testing::ExitedWithCode(2),
              "expected \"own\" or \"aten\", got \"fast\"");
}

TEST(KernelsTest, GradientsMayLieAnywhere) {
  const OnCpu on_cpu;
  const auto leaf = [] { return testing::Leaf(testing::Normal({2, 2, 2, 16}, 1)); };
  const auto gradient = [&](const auto& apply, const at::Tensor& dy) {
    const at::Tensor x = leaf();
    apply(x).backward(dy);
    return x.grad();
  };
  const std::function<at::Tensor(const at::Tensor&)> all[] = {
      [](const at::Tensor& x) { return NormByKernel(x, {.width = 16}, Pass()).value(); },
      [](const at::Tensor& x) { return SwigluByKernel(x, x.detach()).value(); },
      [](const at::Tensor& x) { return RotateByKernel(x, 10000, 0).value(); }};
  const at::Tensor longer = testing::Normal({129}, 2);
  const at::Tensor unaligned = longer.narrow(0, 1, 128).view({2, 2, 2, 16});
  const at::Tensor turned = testing::Normal({16, 2, 2, 2}, 3).permute({3, 2, 1, 0});
  for (const auto& apply : all) {
    for (const at::Tensor& dy : {unaligned, turned, longer.narrow(0, 0, 1).expand({2, 2, 2, 16})}) {
      const at::Tensor plain = dy.clone(at::MemoryFormat::Contiguous);
      EXPECT_TRUE(SameBits(gradient(apply, dy), gradient(apply, plain)));
    }
  }
}

/// A layer runs ATen's kernels on tensors that ours do not take.
TEST(KernelsTest, OtherTensorsAreLeftToAten) {
  const OnCpu on_cpu;
  const auto norm = [](const at::Tensor& x, const at::Tensor& weight) {
    const Parameter parameter = {.name = "weight", .value = weight};
    return NormByKernel(x, {.width = x.size(-1), .weight = &parameter}, Pass()).has_value();
  };
  const at::Tensor x = at::ones({2, 16});
  EXPECT_TRUE(norm(x, at::ones({16})));
  EXPECT_FALSE(norm(x.to(at::kDouble), at::ones({16})));
  EXPECT_FALSE(norm(x, at::ones({16}, at::kBFloat16)));
  EXPECT_FALSE(norm(at::ones({1, 8193}), at::ones({8193})));
  EXPECT_FALSE(norm(x.t(), at::ones({2})));
  EXPECT_FALSE(norm(at::ones({33}).narrow(0, 1, 32).view({2, 16}), at::ones({16}))) << "unaligned";
  EXPECT_FALSE(norm(at::ones({0, 16}), at::ones({16})));
  EXPECT_FALSE(AreForSum(x, x.to(at::kHalf)));
  EXPECT_FALSE(AreForSum(x, at::ones({16})));
  EXPECT_FALSE(AreForSum(x.t(), x.t()));
  EXPECT_FALSE(IsForDropout(x.to(at::kDouble)));
  EXPECT_FALSE(SwigluByKernel(x, x.to(at::kHalf)));
  EXPECT_FALSE(SwigluByKernel(x.t(), x.t()));
  EXPECT_FALSE(SwigluOfHalvesByKernel(at::ones({2, 3})));
  EXPECT_FALSE(SwigluOfHalvesByKernel(x.t()));
  EXPECT_FALSE(SwigluOfHalvesByKernel(x.to(at::kDouble)));
  EXPECT_FALSE(RotateByKernel(x, 10000, 0)) << "no heads";
  EXPECT_FALSE(RotateByKernel(at::ones({1, 1, 2, 3}), 10000, 0)) << "an odd width";
  EXPECT_FALSE(RotateByKernel(at::ones({1, 2, 2, 20}).narrow(3, 0, 16), 10000, 0)) << "gaps";
  EXPECT_FALSE(AddColumnSumsByKernel(x, at::ones({16}, at::kBFloat16)));
  EXPECT_FALSE(AddColumnSumsByKernel(x.t(), at::ones({2})));
  EXPECT_FALSE(AddColumnSumsByKernel(x.to(at::kDouble), at::ones({16})));
  const at::Tensor wide = at::ones({16}, at::kDouble);
  EXPECT_FALSE(
      AdamByKernel({.values = wide, .gradients = wide, .averages = wide, .squares = wide}));
}

}  // namespace
}  // namespace strata
