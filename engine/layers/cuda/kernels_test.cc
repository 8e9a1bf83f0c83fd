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
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/cuda/adam_kernel.h"
#include "engine/layers/cuda/kernel_sources.h"
#include "engine/layers/cuda/launch.h"
#include "engine/layers/cuda/llama_kernels.h"
#include "engine/layers/cuda/norm_kernels.h"
#include "engine/layers/cuda/on_cpu.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using on_cpu::Order;
using testing::SameBits;

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

/// One comparison.
struct Case {
  std::string name;
  std::function<Tensors()> kernel;
  std::function<Tensors()> reference;  ///< in float64
  std::vector<double> tolerances;      ///< by tensor: |a - b| <= tolerance (1 + |b|)
};

/// What is wrong with a kernel; "" = nothing.
std::string ErrorOf(const Case& c, const std::vector<on_cpu::Kernel>* kernels = nullptr) {
  const Tensors wanted = c.reference();
  Tensors first;
  for (const Order order : {Order::kUp, Order::kDown, Order::kRandom}) {
    Tensors got;
    try {
      const OnCpu on_cpu(order, kernels);
      got = c.kernel();
    } catch (const std::runtime_error& error) {
      return Str(c.name, ": ", error.what());
    }
    if (order == Order::kUp) first = got;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!SameBits(got.at(i), first[i])) return Str(c.name, ": tensor ", i, ": other bits");
      const at::Tensor error = (got[i].to(at::kDouble) - wanted[i]).abs() / (1 + wanted[i].abs());
      const auto worst = error.max().item<double>();
      if (!(worst <= c.tolerances[i])) {
        return Str(c.name, ": tensor ", i, " differs by ", worst, ", not ", c.tolerances[i]);
      }
    }
  }
  return "";
}

double Rounding(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

at::Tensor Double(const at::Tensor& x) { return x.detach().to(at::kDouble); }
at::Tensor Leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

/// The gradients of inputs for the output's gradient `dy`. Undefined ones are left out.
Tensors GradientsOf(const at::Tensor& y, const at::Tensor& dy, const Tensors& inputs) {
  y.backward(dy);
  Tensors gradients;
  for (const at::Tensor& input : inputs) {
    if (input.defined()) gradients.push_back(input.grad());
  }
  return gradients;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

Case NormCase(int64_t rows, int64_t width, bool centred, bool has_weight, bool has_bias,
              at::ScalarType type) {
  const at::Tensor x = testing::Normal({rows, width}, 1).mul(2).add(0.7).to(type);
  const at::Tensor dy = testing::Normal({rows, width}, 2).to(type);
  const auto row = [&](bool has, uint64_t seed) {
    return has ? Leaf(testing::Normal({width}, seed)) : at::Tensor();
  };
  const at::Tensor weight = row(has_weight, 3), bias = row(has_bias, 4);
  const auto kernel = [=] {
    const Parameter w = {.name = "weight", .value = has_weight ? Leaf(weight) : at::Tensor()};
    const Parameter b = {.name = "bias", .value = has_bias ? Leaf(bias) : at::Tensor()};
    const at::Tensor input = Leaf(x);
    const NormCall call = {.centred = centred,
                           .width = width,
                           .weight = has_weight ? &w : nullptr,
                           .bias = has_bias ? &b : nullptr,
                           .eps = 1e-5};
    const at::Tensor y = NormByKernel(input, call, Pass()).value();
    Tensors all = GradientsOf(y, dy, {input, w.value, b.value});
    all.insert(all.begin(), y);
    return all;
  };
  const auto reference = [=] {
    const at::Tensor input = Leaf(Double(x));
    const at::Tensor w = has_weight ? Leaf(Double(weight)) : at::Tensor();
    const at::Tensor b = has_bias ? Leaf(Double(bias)) : at::Tensor();
    const auto optional = [](const at::Tensor& t) {
      return t.defined() ? std::optional(t) : std::nullopt;
    };
    const at::Tensor y = centred ? at::layer_norm(input, {width}, optional(w), optional(b), 1e-5)
                                 : at::rms_norm(input, {width}, optional(w), 1e-5);
    Tensors all = GradientsOf(y, Double(dy), {input, w, b});
    all.insert(all.begin(), y);
    return all;
  };
  const double own = Rounding(type), sum = 2e-6 * static_cast<double>(rows);
  return {Str(centred ? "layer_norm " : "rms_norm ", rows, " x ", width, " ", c10::toString(type),
              has_weight ? " weight" : "", has_bias ? " bias" : ""),
          kernel,
          reference,
          {own, 4 * own, sum, sum}};
}

Case AdamCase(int64_t count, bool decoupled, bool maximize, at::ScalarType copied) {
  const at::Tensor start[] = {testing::Normal({count}, 1), testing::Normal({count}, 2).mul(10),
                              testing::Normal({count}, 3).mul(0.1),
                              testing::Normal({count}, 4).square().mul(0.01)};
  const auto kernel = [=] {
    Tensors t;
    for (const at::Tensor& x : start) t.push_back(x.clone());
    AdamCall call = {.values = t[0],
                     .gradients = t[1],
                     .averages = t[2],
                     .squares = t[3],
                     .step = 7,
                     .lr = 0.01,
                     .divisor = 2.5,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .decay = 0.1,
                     .decoupled = decoupled,
                     .maximize = maximize};
    if (copied != at::kFloat) call.copy = at::zeros({count}, copied);
    EXPECT_TRUE(AdamByKernel(call));
    if (copied != at::kFloat) t.push_back(call.copy);
    return t;
  };
  const auto reference = [=] {
    Tensors t;
    for (const at::Tensor& x : start) t.push_back(Double(x));
    const auto run = [&](const auto& function) {
      function(at::TensorList(t[0]), at::TensorList(t[1]), at::TensorList(t[2]),
               at::TensorList(t[3]), at::TensorList(), at::TensorList(at::full({}, 7.0F)), 0.01,
               0.9, 0.95, 0.1, 1e-8, /*amsgrad=*/false, maximize,
               std::optional<at::Tensor>(at::full({}, 2.5F)), std::optional<at::Tensor>());
    };
    decoupled ? run([](const auto&... a) { at::_fused_adamw_(a...); })
              : run([](const auto&... a) { at::_fused_adam_(a...); });
    if (copied != at::kFloat) t.push_back(t[0]);
    return t;
  };
  return {
      Str("adamw ", count, decoupled ? " decoupled " : " ", maximize, " ", c10::toString(copied)),
      kernel,
      reference,
      {2e-6, 2e-6, 2e-6, 2e-6, Rounding(copied)}};
}

Case SwigluCase(int64_t count, at::ScalarType type) {
  const auto part = [&](uint64_t seed) { return testing::Normal({count}, seed).mul(3).to(type); };
  const at::Tensor gate = part(1), up = part(2), dy = part(3);
  const auto run = [=](const auto& convert, const auto& apply) {
    const Tensors in = {Leaf(convert(gate)), Leaf(convert(up))};
    const at::Tensor y = apply(in[0], in[1]);
    Tensors all = GradientsOf(y, convert(dy), in);
    all.push_back(y);
    return all;
  };
  const double own = 2 * Rounding(type);
  return {
      Str("swiglu ", count, " ", c10::toString(type)),
      [=] {
        return run([](const at::Tensor& x) { return x; },
                   [](const auto& g, const auto& u) { return SwigluByKernel(g, u).value(); });
      },
      [=] { return run(Double, [](const auto& g, const auto& u) { return at::silu(g).mul(u); }); },
      {own, own, own}};
}

/// As Rotate() of llama.cc, in float64.
at::Tensor Rotated(const at::Tensor& x, double theta, int64_t first) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor frequency =
      at::pow(at::Scalar(theta), at::arange(half, at::kDouble).neg().div(half));
  const at::Tensor angle =
      at::arange(first, first + x.size(-2), at::kDouble).unsqueeze(1).mul(frequency);
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const at::Tensor c = angle.cos(), s = angle.sin();
  return at::cat({a * c - b * s, b * c + a * s}, -1);
}

/// `turned`: the heads lie behind the tokens, as a projection gives them.
Case RotateCase(at::IntArrayRef sizes, bool turned, int64_t first, at::ScalarType type) {
  const auto heads = [&](uint64_t seed) {
    std::vector<int64_t> own = sizes.vec();
    if (turned) std::swap(own[1], own[2]);
    const at::Tensor x = testing::Normal(own, seed).to(type);
    return turned ? x.transpose(1, 2) : x;
  };
  const at::Tensor x = heads(1), dy = heads(2);
  const auto kernel = [=] {
    const at::Tensor input = x.detach().set_requires_grad(true);
    input.mutable_grad().reset();
    const at::Tensor y = RotateByKernel(input, 10000, first).value();
    EXPECT_EQ(y.strides(), x.strides());
    return Tensors{y, GradientsOf(y, dy, {input})[0]};
  };
  const auto reference = [=] {
    const at::Tensor input = Leaf(Double(x));
    const at::Tensor y = Rotated(input, 10000, first);
    return Tensors{y, GradientsOf(y, Double(dy), {input})[0]};
  };
  const double own = 2 * Rounding(type) + 1e-6 * static_cast<double>(first);
  return {Str("rotate ", c10::Join("x", sizes), turned ? " turned " : " ", c10::toString(type)),
          kernel,
          reference,
          {own, own}};
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{
             {1, 1}, {3, 7}, {5, 8}, {2, 255}, {3, 264}, {33, 40}, {1, 1025}, {600, 16}}) {
      cases.push_back(NormCase(rows, width, true, true, true, type));
      cases.push_back(NormCase(rows, width, false, true, false, type));
    }
    cases.push_back(NormCase(2, 8192, true, true, true, type));
    cases.push_back(NormCase(4, 24, true, false, false, type));
    cases.push_back(NormCase(4, 24, true, true, false, type));
    cases.push_back(NormCase(4, 24, false, false, false, type));
    for (const int count : {1, 7, 8, 2047, 2048, 2049, 5000}) {
      cases.push_back(AdamCase(count, count % 2 == 0, count % 4 == 1, type));
      cases.push_back(SwigluCase(count, type));
    }
    for (const bool turned : {false, true}) {
      cases.push_back(RotateCase({2, 3, 5, 16}, turned, 0, type));
      cases.push_back(RotateCase({2, 5, 3, 64}, turned, 9, type));
      cases.push_back(RotateCase({1, 9, 40, 32}, turned, 0, type));
      cases.push_back(RotateCase({3, 1, 2, 2}, turned, 1, type));
      cases.push_back(RotateCase({2, 2, 3, 22}, turned, 100, type));
    }
  }
  return cases;
}

TEST(KernelsTest, HaveAtensNumbersInFloat64AndEqualBitsInEachOrder) {
  for (const Case& c : Cases()) EXPECT_EQ(ErrorOf(c), "");
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
    {"norm.cu", "__syncthreads();", "", "rms_norm"},
    {"norm.cu", "column < columns", "column <= columns", "rms_norm"},
    {"norm.cu", "n % kPack == 0 && count > 0", "count > 0", "rms_norm"},
    {"norm.cu", "row < end;", "row <= end;", "rms_norm"},
    {"norm.cu", "partial, at + n", "partial, at + n - 1", "layer_norm"},
    {"norm.cu", "- mean_g", "", "layer_norm"},
    {"adamw.cu", "aligned = here == kPack", "aligned = true", "adamw"},
    {"adamw.cu", "keep_square * v[k] +", "", "adamw"},
    {"swiglu.cu", "* (1 + g[k] * (1 - sigmoid))", "", "swiglu"},
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
  // A static variable of an inline function must not be shared with the mutants before.
  const std::string command = Str("c++ -std=c++20 -O0 -w -shared -fPIC -fno-gnu-unique -I", root,
                                  " -I. ", kFolder, "on_cpu.cc -o ", library);
  EXPECT_EQ(std::system(command.c_str()), 0);
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(loaded, nullptr) << dlerror();
  if (!loaded) return nullptr;
  using Entry = decltype(&on_cpu::strata_kernels_on_cpu);
  return reinterpret_cast<Entry>(dlsym(loaded, "strata_kernels_on_cpu"))();
}

TEST(KernelsTest, MutantsAreNoticed) {
  const std::vector<Case> cases = Cases();
  int number = 0;
  for (const Mutant& mutant : kMutants) {
    const std::vector<on_cpu::Kernel>* const kernels = Compiled(mutant, ++number);
    if (!kernels) continue;
    std::string error;
    for (const Case& c : cases) {
      if (error.empty() && c.name.starts_with(mutant.cases)) error = ErrorOf(c, kernels);
    }
    EXPECT_NE(error, "") << mutant.file << ": " << mutant.text << " -> " << mutant.by;
    std::printf("%s, \"%s\" -> \"%s\": %s\n", mutant.file, mutant.text, mutant.by, error.c_str());
  }
}

// ---- Layers

struct Trained {
  at::Tensor output, input_grad, grads;
};

Trained Train(const LayerSpec& spec, const at::Tensor& input) {
  RandomScope scope(1);
  const auto layer = BuildLayer(spec, nullptr);
  const testing::FlatBuffers flat(*layer);
  const at::Tensor x = Leaf(input);
  Trained result;
  for (int i = 0; i < 2; ++i) {
    Pass pass = testing::TrainingPass();
    pass.weight_gradients->set_deferred(i == 1);
    result.output = layer->Forward({x}, pass)[0];
    result.output.square().sum().backward();
    pass.weight_gradients->Run();
  }
  result.input_grad = x.grad();
  result.grads = flat.grads;
  return result;
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
  const Used all[] = {
      {spec("LayerNorm", {{"normalized_shape", Value::IntList({24})}}), {3, 5, 24}, 6},
      {spec("LayerNorm", {{"normalized_shape", Value::IntList({3, 5})}}), {4, 3, 5}, 6},
      {spec("LayerNorm", {{"normalized_shape", 24}, {"elementwise_affine", false}}), {5, 24}, 4},
      {spec("RMSNorm", {{"normalized_shape", 24}}), {3, 5, 24}, 6},
      {spec("SwiGLU", {{"dim", 16}, {"hidden", 24}}), {2, 5, 16}, 4},
      {spec("RotaryEmbedding", {{"dim", 16}}), {2, 3, 5, 16}, 4},
      {spec("GroupedQueryAttention", attention), {2, 6, 32}, 8}};
  for (const Used& used : all) {
    const at::Tensor input = testing::Normal(used.input, 5);
    const Trained without = Train(used.spec, input);
    const OnCpu on_cpu;
    const Trained with = Train(used.spec, input);
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

/// ATen runs where the kernels do not take a tensor.
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
  EXPECT_FALSE(SwigluByKernel(x, x.to(at::kHalf)));
  EXPECT_FALSE(SwigluByKernel(x.t(), x.t()));
  EXPECT_FALSE(RotateByKernel(x, 10000, 0)) << "no heads";
  EXPECT_FALSE(RotateByKernel(at::ones({1, 1, 2, 3}), 10000, 0)) << "an odd width";
  EXPECT_FALSE(RotateByKernel(at::ones({1, 2, 2, 20}).narrow(3, 0, 16), 10000, 0)) << "gaps";
  const at::Tensor wide = at::ones({16}, at::kDouble);
  EXPECT_FALSE(
      AdamByKernel({.values = wide, .gradients = wide, .averages = wide, .squares = wide}));
}

}  // namespace
}  // namespace strata
