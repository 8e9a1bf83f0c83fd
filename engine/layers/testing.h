// Helpers for tests of layers: comparing bits, and binding parameters as a stage does.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/random/random.h"

namespace strata::testing {

/// Tests use one thread: bits may depend on the number of threads, and several are slower on a busy
/// machine.
inline const bool kOneThread = (at::set_num_threads(1), true);

/// True when shapes, dtypes and bits are equal (a NaN equals itself, 0 and -0 differ).
inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous();
  const at::Tensor y = b.detach().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return 1e30;
  return a.numel() == 0 ? 0 : (a.detach() - b.detach()).abs().max().item<double>();
}

inline at::Tensor Normal(at::IntArrayRef shape, uint64_t seed) {
  const RandomScope scope(seed);
  return at::randn(shape);
}

/// Binds a layer as a stage does: moves its parameters into flat buffers on a device, each padded
/// to 16 floats, and calls OnBound().
struct FlatBuffers {
  at::Tensor values;
  at::Tensor grads;

  explicit FlatBuffers(Layer& layer, at::Device device = at::kCPU) {
    const auto padded = [](const at::Tensor& t) { return (t.numel() + 15) / 16 * 16; };
    int64_t size = 0;
    for (const Parameter& p : layer.parameters()) size += padded(p.value);
    values = at::zeros({size}, device);
    grads = at::zeros({size}, device);
    int64_t begin = 0;
    for (Parameter& p : layer.parameters()) {
      const at::Tensor value = values.narrow(0, begin, p.value.numel()).view_as(p.value);
      const at::Tensor grad = grads.narrow(0, begin, p.value.numel()).view_as(p.value);
      begin += padded(p.value);
      value.copy_(p.value.detach());
      p.value = value.variable_data().set_requires_grad(!p.frozen);
      if (!p.frozen) p.grad = grad;
    }
    for (LayerBuffer& b : layer.buffers()) b.value = b.value.to(device);
    layer.OnBound();
  }
};

inline std::vector<at::Tensor> Grads(Layer& layer) {
  std::vector<at::Tensor> grads;
  for (const Parameter& p : layer.parameters()) {
    grads.push_back(p.grad.defined() ? p.grad.clone() : at::Tensor());
  }
  return grads;
}

/// Options of a training pass that collects weight gradients.
inline Pass TrainingPass() {
  Pass pass;
  pass.weight_gradients = std::make_shared<WeightGradients>();
  return pass;
}

}  // namespace strata::testing
