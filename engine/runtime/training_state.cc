#include "engine/runtime/training_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/tensor_name.h"
#include "engine/comm/specs.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

std::string CheckedName(std::string name) {
  const std::string trouble = TroubleWithTensorName(name);
  if (trouble.empty()) return name;
  throw ConfigError(Str("the tensor ", QuotedName(name), " cannot be saved: ", trouble,
                        "; give its layer another name"));
}

StateTensor Whole(const std::string& name, TensorKind kind, const at::Tensor& tensor) {
  const at::Tensor memory = tensor.detach();
  STRATA_CHECK(memory.is_contiguous()) << name;
  const TensorSpec spec = SpecOf(memory);
  return {CheckedName(name), kind, spec, Slice::Whole(spec.shape), /*is_copy=*/false, memory};
}

/// What the optimizer has of a parameter. It may know a part of the flat buffer alone, whose place
/// in the memory of the values tells which.
void AddMoments(const PlacedParameter& parameter, const std::string& name,
                const OptimizerState& state, std::vector<StateTensor>& tensors) {
  const at::Tensor value = parameter.value.detach(), flat = state.buffer.values;
  if (!flat.is_alias_of(value)) return;
  const int64_t begin = std::max(value.storage_offset(), flat.storage_offset());
  const int64_t end =
      std::min(value.storage_offset() + value.numel(), flat.storage_offset() + flat.numel());
  if (begin >= end) return;
  for (const Moment& moment : state.moments) {
    StateTensor tensor = Whole(Str(name, "#", moment.name), TensorKind::kMoment, value);
    tensor.is_copy = !parameter.counted;
    tensor.slice.begin = begin - value.storage_offset();
    tensor.slice.count = end - begin;
    tensor.memory = moment.values.narrow(0, begin - flat.storage_offset(), end - begin);
    tensors.push_back(std::move(tensor));
  }
}

/// The box that a slice is part of, in memory of its own.
at::Tensor ReadBox(const Checkpoint& save, const SavedTensor& saved, const Slice& slice) {
  const Slice box = Slice::Box(slice.offset, slice.shape);
  at::Tensor whole = EmptyTensors({{slice.shape, saved.spec.dtype}}, at::kCPU)[0];
  save.Read(saved, box, whole.mutable_data_ptr());
  return whole.flatten().narrow(0, slice.begin, slice.count);
}

}  // namespace

TiePaths TiePathsOf(const std::vector<LayerSpec>& layers) {
  TiePaths paths;
  for (size_t index = 0; index < layers.size(); ++index) {
    const LayerSpec& layer = layers[index];
    if (layer.tied_key.empty()) continue;
    for (size_t i = 0; i < layer.tied_weights.size(); ++i) {
      const std::string path = LayerPath(layer, static_cast<int>(index));
      paths.emplace(TieName(layer.tied_key, i), Str(path, ".", layer.tied_weights[i]));
    }
  }
  return paths;
}

std::vector<StateTensor> StateOf(Stage& stage, const Optimizer& optimizer, const TiePaths& ties) {
  std::vector<StateTensor> tensors;
  const std::vector<OptimizerState> states = optimizer.state();
  for (const PlacedParameter& parameter : stage.parameters().parameters()) {
    const std::string& name = parameter.tie.empty() ? parameter.path : ties.at(parameter.tie);
    tensors.push_back(Whole(name, TensorKind::kParameter, parameter.value));
    tensors.back().is_copy = !parameter.counted;
    if (!parameter.gradient.defined()) continue;
    for (const OptimizerState& state : states) AddMoments(parameter, name, state, tensors);
  }
  for (const StageLayer& layer : stage.layers()) {
    for (const LayerBuffer& buffer : layer.layer->buffers()) {
      const std::string name = Str(layer.path, ".", buffer.name);
      tensors.push_back(Whole(name, TensorKind::kBuffer, buffer.value));
    }
  }
  return tensors;
}

const SavedTensor& FindSaved(const Checkpoint& save, const StateTensor& tensor) {
  const SavedTensor* saved = save.manifest().Find(tensor.name);
  if (!saved) {
    throw ConfigError(Str(save.path(), " has no tensor ", QuotedName(tensor.name), " (",
                          tensor.spec.ToString(), ")"));
  }
  if (saved->spec != tensor.spec) {
    throw ConfigError(Str(save.path(), ": tensor ", QuotedName(tensor.name), " is ",
                          saved->spec.ToString(), ", this job's is ", tensor.spec.ToString()));
  }
  return *saved;
}

void LoadTensor(const Checkpoint& save, const StateTensor& tensor) {
  const at::NoGradGuard no_grad;
  const SavedTensor& saved = FindSaved(save, tensor);
  if (tensor.memory.is_cpu() && tensor.slice.is_box()) {
    return save.Read(saved, tensor.slice, tensor.memory.mutable_data_ptr());
  }
  tensor.memory.view({-1}).copy_(ReadBox(save, saved, tensor.slice));
}

}  // namespace strata
