#include "engine/runtime/flat_parameters.h"

#include <ATen/ops/zeros.h>

#include <map>
#include <utility>

#include "engine/base/text.h"

namespace strata {
namespace {

int64_t Padded(int64_t elements) {
  return (elements + FlatParameters::kPadding - 1) / FlatParameters::kPadding *
         FlatParameters::kPadding;
}

/// Gives out the places of one flat buffer, one behind the other.
class Region {
 public:
  void Reserve(const at::Tensor& value) { size_ += Padded(value.numel()); }

  FlatBuffer Allocate(int group, at::ScalarType type, at::Device device) {
    const auto options = at::dtype(type).device(device);
    buffer_ = {group, at::zeros({size_}, options), at::zeros({size_}, options)};
    return buffer_;
  }

  /// Moves the parameter to the next place. Each gets a version counter of its own: with plain
  /// views a change of one parameter would invalidate the graphs of all.
  void Place(Parameter& parameter) {
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, next_, parameter.value.numel())
          .view(parameter.value.sizes())
          .variable_data();
    };
    at::Tensor value = view(buffer_.values);
    value.copy_(parameter.value.detach());
    parameter.grad = view(buffer_.gradients);
    next_ += Padded(value.numel());
    parameter.value = value.set_requires_grad(true);
  }

 private:
  int64_t size_ = 0;
  int64_t next_ = 0;
  FlatBuffer buffer_;
};

using RegionKey = std::pair<int, at::ScalarType>;  // group and dtype

template <class Function>
void ForEachParameter(std::vector<StageLayer>& layers, const Function& function) {
  for (StageLayer& layer : layers) {
    for (Parameter& parameter : layer.layer->parameters()) function(layer, parameter);
  }
}

}  // namespace

FlatParameters::FlatParameters(std::vector<StageLayer>& layers, const GroupOf& group_of,
                               at::Device device) {
  const auto key = [&](const StageLayer& layer, const Parameter& parameter) {
    return RegionKey(group_of(layer.index, parameter.name), parameter.value.scalar_type());
  };
  std::map<RegionKey, Region> regions;
  ForEachParameter(layers, [&](const StageLayer& layer, const Parameter& parameter) {
    if (!parameter.frozen) regions[key(layer, parameter)].Reserve(parameter.value);
  });
  for (auto& [group_and_type, region] : regions) {
    buffers_.push_back(region.Allocate(group_and_type.first, group_and_type.second, device));
  }
  ForEachParameter(layers, [&](const StageLayer& layer, Parameter& parameter) {
    if (parameter.frozen) {
      parameter.value = parameter.value.detach().to(device);
    } else {
      regions[key(layer, parameter)].Place(parameter);
    }
    parameters_.push_back(
        {layer.index, Str(layer.path, ".", parameter.name), parameter.value, parameter.grad});
  });
  for (StageLayer& layer : layers) {
    for (LayerBuffer& buffer : layer.layer->buffers()) buffer.value = buffer.value.to(device);
    layer.layer->OnBound();
  }
}

void FlatParameters::ZeroGradients() {
  for (FlatBuffer& buffer : buffers_) buffer.gradients.zero_();
}

}  // namespace strata
