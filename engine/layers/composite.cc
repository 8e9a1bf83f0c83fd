#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/composite.h"

namespace strata {

void CompositeLayer::Take(const std::string& name, std::unique_ptr<Layer> layer) {
  const size_t first_parameter = parameters_.size();
  const size_t first_buffer = buffers_.size();
  const std::string prefix = name.empty() ? "" : name + ".";
  for (Parameter parameter : layer->parameters()) {
    parameter.name = prefix + parameter.name;
    parameters_.push_back(std::move(parameter));
  }
  for (LayerBuffer buffer : layer->buffers()) {
    buffer.name = prefix + buffer.name;
    buffers_.push_back(std::move(buffer));
  }
  children_.push_back({std::move(layer), first_parameter, first_buffer});
}

void CompositeLayer::OnBound() {
  Layer::OnBound();
  for (Child& child : children_) {
    size_t next = child.first_parameter;
    for (Parameter& parameter : child.layer->parameters()) {
      const Parameter& bound = parameters_[next++];
      parameter.value = bound.value;
      parameter.original = bound.original;
      parameter.grad = bound.grad;
      parameter.frozen = bound.frozen;
      parameter.low_rank = bound.low_rank;
      parameter.packed = bound.packed;
    }
    next = child.first_buffer;
    for (LayerBuffer& buffer : child.layer->buffers()) buffer.value = buffers_[next++].value;
    child.layer->OnBound();
  }
}

}  // namespace strata
