#include "engine/comm/specs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>

#include "engine/base/tensors/dtype.h"

namespace strata {
TensorSpec SpecOf(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), FromScalarType(tensor.scalar_type())};
}

TensorSpecs SpecsOf(const std::vector<at::Tensor>& tensors) {
  TensorSpecs specs;
  specs.reserve(tensors.size());
  std::ranges::transform(tensors, std::back_inserter(specs), SpecOf);
  return specs;
}

bool Fits(const std::vector<at::Tensor>& tensors, const TensorSpecs& specs) {
  return std::ranges::equal(tensors, specs, [](const at::Tensor& tensor, const TensorSpec& spec) {
    return tensor.scalar_type() == ToScalarType(spec.dtype) && tensor.sizes() == spec.shape;
  });
}

std::vector<at::Tensor> EmptyTensors(const TensorSpecs& specs, at::Device device) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    tensors.push_back(at::empty(spec.shape, at::dtype(ToScalarType(spec.dtype)).device(device)));
  }
  return tensors;
}

}  // namespace strata
