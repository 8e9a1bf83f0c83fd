// Cases that compare our kernels with ATen in float64, for the CPU (kernels_test.cc) and for a GPU
// (cuda_test.cc).
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/cuda/adam_kernel.h"
#include "engine/layers/cuda/column_sums.h"
#include "engine/layers/cuda/dropout_kernels.h"
#include "engine/layers/cuda/llama_kernels.h"
#include "engine/layers/cuda/norm_kernels.h"
#include "engine/layers/cuda/unpack_kernels.h"
#include "engine/layers/kernels/unpack.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/random/random.h"
#include "engine/layers/testing.h"

namespace strata::testing {

/// One comparison.
struct KernelCase {
  std::string name;
  std::function<Tensors(at::Device)> kernel;
  std::function<Tensors()> reference;  ///< in float64
  std::vector<double> tolerances;      ///< by tensor: |a - b| <= tolerance (1 + |b|)
};

inline double Rounding(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

inline at::Tensor Double(const at::Tensor& x) { return x.detach().to(at::kDouble); }
/// A copy that wants a gradient.
inline at::Tensor Leaf(const at::Tensor& x, at::Device device = at::kCPU) {
  return x.detach().to(device, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
}

/// What training a layer gave, on the CPU.
struct Trained {
  at::Tensor output, input_grad, grads;
};

/// Trains a layer on the same input twice; the second time its weight gradients wait until the end.
inline Trained TrainTwice(const LayerSpec& spec, const at::Tensor& input,
                          at::Device device = at::kCPU) {
  RandomScope scope(1);
  const auto layer = BuildLayer(spec, nullptr);
  const FlatBuffers flat(*layer, device);
  const at::Tensor x = input.to(device).clone();
  if (x.is_floating_point()) x.set_requires_grad(true);
  at::Tensor output;
  for (int i = 0; i < 2; ++i) {
    Pass pass = TrainingPass();
    pass.weight_gradients->set_deferred(i == 1);
    output = layer->Forward({x}, pass)[0];
    output.square().sum().backward();
    pass.weight_gradients->Run();
  }
  return {output.cpu(), x.grad().defined() ? x.grad().cpu() : at::Tensor(), flat.grads.cpu()};
}

/// The gradients of inputs for the output's gradient `dy`. Undefined ones are left out.
inline Tensors GradientsOf(const at::Tensor& y, const at::Tensor& dy, const Tensors& inputs) {
  y.backward(dy);
  Tensors gradients;
  for (const at::Tensor& input : inputs) {
    if (input.defined()) gradients.push_back(input.grad());
  }
  return gradients;
}

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

/// The factors of a dropout of `count` elements, drawn by ATen's Philox.
inline at::Tensor FactorsOf(int64_t count, const Drops& drops) {
  const auto keep = static_cast<float>(1 - drops.p);
  at::philox_engine random(drops.seed);
  at::Tensor factors = at::empty({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    factors[i] = static_cast<float>(random() >> 8) * 0x1p-24F < keep ? 1 / (1 - drops.p) : 0;
  }
  return factors;
}

struct NormShape {
  int64_t rows, width;
  bool centred, has_weight, has_bias;
};

/// A norm of x, or with `drops` of x + dropout(f), which is an output too.
inline KernelCase NormCase(const NormShape& shape, at::ScalarType type,
                           std::optional<Drops> drops = {}) {
  const auto [rows, width, centred, has_weight, has_bias] = shape;
  const at::Tensor x = Normal({rows, width}, 1).mul(2).add(0.7).to(type);
  const at::Tensor f = drops ? Normal({rows, width}, 5).to(type) : at::Tensor();
  const at::Tensor dy = Normal({rows, width}, 2).to(type), more = Normal({rows, width}, 6).to(type);
  const auto row = [&](bool has, uint64_t seed) {
    return has ? Leaf(Normal({width}, seed)) : at::Tensor();
  };
  const at::Tensor weight = row(has_weight, 3), bias = row(has_bias, 4);
  const auto gradients = [=](const Tensors& outputs, const Tensors& inputs, const auto& convert) {
    at::Tensor loss = outputs[0].mul(convert(dy)).sum();
    if (drops) loss = loss.add(outputs[1].mul(convert(more)).sum());
    loss.backward();
    Tensors all = outputs;
    for (const at::Tensor& input : inputs) {
      if (input.defined()) all.push_back(input.grad());
    }
    return all;
  };
  const auto kernel = [=](at::Device device) {
    const Parameter w = {.name = "weight",
                         .value = has_weight ? Leaf(weight, device) : at::Tensor()};
    const Parameter b = {.name = "bias", .value = has_bias ? Leaf(bias, device) : at::Tensor()};
    const at::Tensor input = Leaf(x, device);
    const NormCall call = {.centred = centred,
                           .width = width,
                           .weight = has_weight ? &w : nullptr,
                           .bias = has_bias ? &b : nullptr,
                           .eps = 1e-5};
    const auto convert = [&](const at::Tensor& t) { return t.to(device); };
    if (!drops) {
      const at::Tensor y = NormByKernel(input, call, Pass()).value();
      return gradients({y}, {input, w.value, b.value}, convert);
    }
    const at::Tensor addend = Leaf(f, device);
    const SumAndNorm both = SumAndNormByKernel({input, addend, *drops}, call, Pass()).value();
    return gradients({both.norm, both.sum}, {input, addend, w.value, b.value}, convert);
  };
  const auto reference = [=] {
    const at::Tensor input = Leaf(Double(x));
    const at::Tensor w = has_weight ? Leaf(Double(weight)) : at::Tensor();
    const at::Tensor b = has_bias ? Leaf(Double(bias)) : at::Tensor();
    const auto optional = [](const at::Tensor& t) {
      return t.defined() ? std::optional(t) : std::nullopt;
    };
    const auto norm = [&](const at::Tensor& t) {
      return centred ? at::layer_norm(t, {width}, optional(w), optional(b), 1e-5)
                     : at::rms_norm(t, {width}, optional(w), 1e-5);
    };
    if (!drops) return gradients({norm(input)}, {input, w, b}, Double);
    const at::Tensor addend = Leaf(Double(f));
    const at::Tensor sum =
        input.add(addend.mul(FactorsOf(rows * width, *drops).view({rows, width})));
    return gradients({norm(sum), sum}, {input, addend, w, b}, Double);
  };
  const double own = Rounding(type), sum = 2e-6 * static_cast<double>(rows);
  std::vector<double> tolerances = {own, 4 * own, sum, sum};
  // The sum is rounded before it is normalised.
  if (drops)
    tolerances = {4 * own, 3 * own, 6 * own, 8 * own, sum + 4 * own * static_cast<double>(rows),
                  sum};
  return {Str(drops ? Str("sum of ", drops->p, " and ") : "", centred ? "layer_norm " : "rms_norm ",
              rows, " x ", width, " ", c10::toString(type), has_weight ? " weight" : "",
              has_bias ? " bias" : ""),
          kernel, reference, tolerances};
}

/// dropout(f), or x + dropout(f).
inline KernelCase DropoutCase(int64_t count, double p, bool adds, at::ScalarType type) {
  const at::Tensor x = Normal({count}, 1).to(type), f = Normal({count}, 2).to(type);
  const at::Tensor dy = Normal({count}, 3).to(type);
  const Drops drops = {p, 77};
  const auto run = [=](const auto& convert, const auto& apply) {
    const Tensors in = {Leaf(convert(f)), Leaf(convert(x))};
    const at::Tensor y = apply(in[0], in[1]);
    Tensors all = GradientsOf(y, convert(dy), {in[0]});
    all.push_back(y);
    return all;
  };
  return {Str("dropout ", count, " ", p, adds ? " added " : " ", c10::toString(type)),
          [=](at::Device device) {
            return run([=](const at::Tensor& t) { return t.to(device); },
                       [=](const at::Tensor& f, const at::Tensor& x) {
                         return adds ? SumByKernel({x, f, drops}) : DropoutByKernel(f, drops);
                       });
          },
          [=] {
            return run(Double, [=](const at::Tensor& f, const at::Tensor& x) {
              const at::Tensor dropped = f.mul(FactorsOf(count, drops));
              return adds ? x.add(dropped) : dropped;
            });
          },
          {Rounding(type), 2 * Rounding(type)}};
}

inline KernelCase AdamCase(int64_t count, bool decoupled, bool maximize, at::ScalarType copied) {
  const at::Tensor start[] = {Normal({count}, 1), Normal({count}, 2).mul(10),
                              Normal({count}, 3).mul(0.1), Normal({count}, 4).square().mul(0.01)};
  const auto kernel = [=](at::Device device) {
    Tensors t;
    for (const at::Tensor& x : start) t.push_back(Leaf(x, device).detach());
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
    if (copied != at::kFloat) call.copy = at::zeros({count}, at::dtype(copied).device(device));
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

inline KernelCase SwigluCase(int64_t count, at::ScalarType type) {
  const auto part = [&](uint64_t seed) { return Normal({count}, seed).mul(3).to(type); };
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
      [=](at::Device device) {
        return run([=](const at::Tensor& x) { return x.to(device); },
                   [](const auto& g, const auto& u) { return SwigluByKernel(g, u).value(); });
      },
      [=] { return run(Double, [](const auto& g, const auto& u) { return at::silu(g).mul(u); }); },
      {own, own, own}};
}

/// gate and up are the halves of each row.
inline KernelCase SwigluOfHalvesCase(int64_t rows, int64_t width, at::ScalarType type) {
  const at::Tensor x = Normal({rows, 2 * width}, 1).mul(3).to(type);
  const at::Tensor dy = Normal({rows, width}, 2).to(type);
  const auto run = [=](const auto& convert, const auto& apply) {
    const at::Tensor in = Leaf(convert(x)), y = apply(in);
    return Tensors{y, GradientsOf(y, convert(dy), {in})[0]};
  };
  return {Str("swiglu of halves ", rows, " x ", width, " ", c10::toString(type)),
          [=](at::Device device) {
            return run([=](const at::Tensor& t) { return t.to(device); },
                       [](const at::Tensor& t) { return SwigluOfHalvesByKernel(t).value(); });
          },
          [=] {
            return run(Double, [=](const at::Tensor& t) {
              return at::silu(t.narrow(1, 0, width)).mul(t.narrow(1, width, width));
            });
          },
          {2 * Rounding(type), 2 * Rounding(type)}};
}

/// As Rotate() of llama.cc, in float64.
inline at::Tensor Rotated(const at::Tensor& x, double theta, int64_t first) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor frequency =
      at::pow(at::Scalar(theta), at::arange(half, at::kDouble).neg().div(half));
  const at::Tensor angle =
      at::arange(first, first + x.size(-2), at::kDouble).unsqueeze(1).mul(frequency);
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const at::Tensor c = angle.cos(), s = angle.sin();
  return at::cat({a * c - b * s, b * c + a * s}, -1);
}

/// `turned`: the heads lie behind the tokens, as a projection gives them. Then they are a part of
/// the projection, with `gap` further heads between two tokens.
inline KernelCase RotateCase(at::IntArrayRef sizes, bool turned, int64_t first, at::ScalarType type,
                             int64_t gap = 0) {
  const auto heads = [&](uint64_t seed) {
    std::vector<int64_t> own = sizes.vec();
    if (turned) std::swap(own[1], own[2]);
    own[2] += gap;
    const at::Tensor x = Normal(own, seed).to(type).narrow(2, 0, own[2] - gap);
    return turned ? x.transpose(1, 2) : x;
  };
  const at::Tensor x = heads(1), dy = heads(2);
  const auto kernel = [=](at::Device device) {
    at::Tensor input = Leaf(x, device);
    if (gap > 0) {
      input = at::empty_strided(x.sizes(), x.strides(), x.options().device(device));
      input.copy_(x).set_requires_grad(true);
    }
    const at::Tensor y = RotateByKernel(input, 10000, first).value();
    EXPECT_TRUE(gap > 0 ? y.transpose(1, 2).is_contiguous() : y.strides() == x.strides());
    return Tensors{y, GradientsOf(y, dy.to(device), {input})[0]};
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

/// `gap`: elements behind each row that are not the matrix's.
inline KernelCase ColumnSumsCase(int64_t rows, int64_t columns, int64_t gap, at::ScalarType type) {
  const at::Tensor x = Normal({rows, columns + gap}, 1).to(type).narrow(1, 0, columns);
  const at::Tensor before = Normal({columns}, 2);
  const auto kernel = [=](at::Device device) {
    const at::Tensor sums = before.to(device).clone();
    const at::Tensor wide = x.as_strided({rows, columns + gap}, {columns + gap, 1});
    EXPECT_TRUE(AddColumnSumsByKernel(wide.to(device).narrow(1, 0, columns), sums));
    return Tensors{sums};
  };
  return {Str("column_sums ", rows, " x ", columns, " + ", gap, " ", c10::toString(type)),
          kernel,
          [=] { return Tensors{Double(before) + Double(x).sum(0)}; },
          {1e-6 * std::sqrt(static_cast<double>(rows))}};
}

/// `skipped`: rows of the packed matrix before those that are asked for.
inline KernelCase UnpackCase(Packing packing, int64_t rows, int64_t columns, int64_t skipped,
                             at::ScalarType type) {
  PackedWeight weight(packing, rows + skipped, columns);
  weight.Pack(Normal({rows + skipped, columns}, 1));
  const auto kernel = [=](at::Device device) {
    PackedWeight there = weight;
    there.To(device);
    return Tensors{there.Rows(skipped, rows)->Dense(type)};
  };
  const auto reference = [=] {
    const auto* const codes = weight.codes().const_data_ptr<uint8_t>();
    at::Tensor dense = at::empty({rows * columns}, at::kDouble);
    for (int64_t i = 0; i < dense.numel(); ++i) {
      const int64_t at = i + skipped * columns;
      const int both = codes[at / 2];
      const double code = packing == Packing::kInt8 ? static_cast<int8_t>(codes[at]) / 127.0
                          : at % 2 == 0             ? unpack::kNf4[both >> 4]
                                                    : unpack::kNf4[both & 15];
      dense[i] = code * weight.scales()[at / BlockElements(packing, columns)].item<double>();
    }
    return Tensors{dense.view({rows, columns})};
  };
  return {Str("unpack ", PackingName(packing), " ", rows, " x ", columns, " ", c10::toString(type)),
          kernel,
          reference,
          {Rounding(type)}};
}

/// What differs from the reference; "" = nothing. `got` is on the CPU.
inline std::string DifferenceOf(const KernelCase& c, const Tensors& got, const Tensors& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const at::Tensor error = (Double(got.at(i)) - wanted[i]).abs() / (1 + wanted[i].abs());
    const auto worst = error.max().item<double>();
    if (!(worst <= c.tolerances[i])) {
      return Str(c.name, ": tensor ", i, " differs by ", worst, ", not ", c.tolerances[i]);
    }
  }
  return "";
}

inline std::vector<KernelCase> KernelCases() {
  std::vector<KernelCase> cases;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{
             {1, 1}, {3, 7}, {5, 8}, {2, 255}, {3, 264}, {33, 40}, {1, 1025}, {600, 16}}) {
      const NormShape layer_norm = {rows, width, true, true, true};
      const NormShape rms_norm = {rows, width, false, true, false};
      cases.push_back(NormCase(layer_norm, type));
      cases.push_back(NormCase(rms_norm, type));
      if (width == 1) continue;  // the norm of a row of one is 0, and its gradient rounding alone
      cases.push_back(NormCase(layer_norm, type, Drops{0.25, 9}));
      cases.push_back(NormCase(rms_norm, type, Drops{}));
    }
    cases.push_back(NormCase({2, 8192, true, true, true}, type));
    cases.push_back(NormCase({4, 24, true, false, false}, type));
    cases.push_back(NormCase({4, 24, true, true, false}, type));
    cases.push_back(NormCase({4, 24, false, false, false}, type));
    for (const int count : {1, 6, 8, 2050}) {
      cases.push_back(DropoutCase(count, 0.3, false, type));
      cases.push_back(DropoutCase(count, count == 6 ? 0 : 0.1, true, type));
    }
    for (const int count : {1, 7, 8, 2047, 2048, 2049, 5000}) {
      cases.push_back(AdamCase(count, count % 2 == 0, count % 4 == 1, type));
      cases.push_back(SwigluCase(count, type));
    }
    for (const auto& [rows, columns] :
         std::vector<std::pair<int, int>>{{1, 1}, {3, 7}, {9, 8}, {65, 31}, {70, 72}, {1030, 40}}) {
      cases.push_back(ColumnSumsCase(rows, columns, 0, type));
    }
    cases.push_back(ColumnSumsCase(40, 56, 8, type));
    cases.push_back(ColumnSumsCase(40, 56, 3, type));
    for (const bool turned : {false, true}) {
      cases.push_back(RotateCase({2, 3, 5, 16}, turned, 0, type));
      cases.push_back(RotateCase({2, 5, 3, 64}, turned, 9, type));
      cases.push_back(RotateCase({1, 9, 40, 32}, turned, 0, type));
      cases.push_back(RotateCase({3, 1, 2, 2}, turned, 1, type));
      cases.push_back(RotateCase({2, 2, 3, 22}, turned, 100, type));
    }
    cases.push_back(RotateCase({2, 3, 5, 16}, true, 0, type, 2));
    for (const auto& [rows, width] :
         std::vector<std::pair<int, int>>{{1, 1}, {3, 8}, {5, 7}, {40, 24}}) {
      cases.push_back(SwigluOfHalvesCase(rows, width, type));
    }
    for (const Packing packing : {Packing::kNf4, Packing::kInt8}) {
      for (const auto& [rows, columns, skipped] : std::vector<std::array<int, 3>>{
               {1, 1, 0}, {3, 7, 1}, {2, 64, 0}, {9, 40, 3}, {20, 129, 2}}) {
        cases.push_back(UnpackCase(packing, rows, columns, skipped, type));
      }
    }
  }
  return cases;
}

}  // namespace strata::testing
