// Initial values with the same bits as torch.nn.init gives. The bounds are computed in double, in
// Python's order of operations. Values are drawn from the thread's generator (random.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace strata {

using Shape = std::vector<int64_t>;

at::Tensor Zeros(const Shape& shape);
at::Tensor Ones(const Shape& shape);
/// Uniform in (-bound, bound).
at::Tensor UniformValues(const Shape& shape, double bound);
/// Normal with mean 0 and standard deviation `std`.
at::Tensor NormalValues(const Shape& shape, double std = 1);

/// The number of inputs of one output (fan-in): shape[1] times the number of elements of a kernel.
int64_t FanIn(const Shape& weight_shape);
/// kaiming_uniform_(weight, a=sqrt(5)), for the weights of Linear and of convolutions.
at::Tensor KaimingUniform(const Shape& shape);
/// Uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in)), for the biases of Linear and of convolutions.
at::Tensor FanInBias(int64_t size, int64_t fan_in);
/// xavier_uniform_ of a matrix, for attention's projections.
at::Tensor XavierUniform(const Shape& shape);
/// xavier_normal_ of (1, 1, n), for attention's additional key and value.
at::Tensor XavierNormal(const Shape& shape);

}  // namespace strata
