#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/init.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "engine/layers/init_type.h"

namespace strata {
namespace {

thread_local at::ScalarType init_type = at::kFloat;

at::Tensor Empty(const Shape& shape) { return at::empty(shape, at::dtype(init_type)); }

}  // namespace

InitTypeScope::InitTypeScope(at::ScalarType type) : before_(std::exchange(init_type, type)) {}
InitTypeScope::~InitTypeScope() { init_type = before_; }

at::Tensor Zeros(const Shape& shape) { return at::zeros(shape, at::dtype(init_type)); }
at::Tensor Ones(const Shape& shape) { return at::ones(shape, at::dtype(init_type)); }

at::Tensor UniformValues(const Shape& shape, double bound) {
  return Empty(shape).uniform_(-bound, bound);
}

at::Tensor NormalValues(const Shape& shape, double std) { return Empty(shape).normal_(0, std); }

int64_t FanIn(const Shape& weight_shape) {
  int64_t fan_in = 1;
  for (size_t dim = 1; dim < weight_shape.size(); ++dim) fan_in *= weight_shape[dim];
  return fan_in;
}

at::Tensor KaimingUniform(const Shape& shape) {
  const double a = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + a * a));
  const double std = gain / std::sqrt(static_cast<double>(FanIn(shape)));
  return UniformValues(shape, std::sqrt(3.0) * std);
}

at::Tensor FanInBias(int64_t size, int64_t fan_in) {
  return UniformValues({size}, 1 / std::sqrt(static_cast<double>(fan_in)));
}

at::Tensor XavierUniform(const Shape& shape) {
  const double fans = static_cast<double>(shape[0] + shape[1]);
  return UniformValues(shape, std::sqrt(3.0) * std::sqrt(2.0 / fans));
}

at::Tensor XavierNormal(const Shape& shape) {
  return NormalValues(shape, std::sqrt(2.0 / static_cast<double>(2 * shape.back())));
}

}  // namespace strata
