// Describes a rank's tensors as slices of whole tensors, and reads such slices from a save. A
// parameter that is divided over the model axis consists of one or more boxes of the whole tensor,
// one after the other in the rank's memory. The moments of an optimizer with ZeRO-1 cover only a
// range of a flat buffer, so a box may be cut at both ends.
#include "engine/runtime/saves/training_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/comm/specs.h"
#include "engine/layers/layer_types.h"
#include "engine/runtime/saves/resumable.h"

namespace strata {
namespace {

std::string CheckedName(std::string name) {
  const std::string trouble = TroubleWithTensorName(name);
  if (trouble.empty()) return name;
  throw ConfigError(Str("the tensor ", QuotedName(name), " cannot be saved: ", trouble,
                        "; give its layer another name"));
}

/// The part of a tensor that a rank has: boxes of it, one after the other in the rank's memory.
struct Holding {
  TensorSpec spec;  // of the whole tensor
  std::vector<Slice> boxes;
};

Holding HoldingOf(const PlacedParameter& parameter, const AxisComm* axis) {
  const TensorSpec own = SpecOf(parameter.value);
  if (!parameter.share) return {own, {Slice::Whole(own.shape)}};
  const auto [dim, blocks] = *parameter.share;
  STRATA_CHECK(axis && (dim == 0 || blocks == 1)) << parameter.path;
  Holding holding = {own, {}};
  holding.spec.shape[dim] *= axis->size();
  std::vector<int64_t> offset(own.shape.size(), 0), shape = own.shape;
  shape[dim] /= blocks;
  for (int block = 0; block < blocks; ++block) {
    offset[dim] = (block * axis->size() + axis->rank()) * shape[dim];
    holding.boxes.push_back(Slice::Box(offset, shape));
  }
  return holding;
}

at::Tensor Flat(const at::Tensor& tensor, const std::string& name) {
  STRATA_CHECK(tensor.is_contiguous()) << name;
  return tensor.detach().view({-1});
}

void AddValues(const PlacedParameter& parameter, const std::string& name, const Holding& holding,
               std::vector<StateTensor>& tensors) {
  if (parameter.packed) {
    STRATA_CHECK(holding.boxes.size() == 1 && parameter.counted) << name;
    StateTensor& tensor = tensors.emplace_back();
    tensor.name = CheckedName(name);
    tensor.spec = holding.spec;
    tensor.slice = holding.boxes[0];
    tensor.packed = parameter.packed;
    return;
  }
  const at::Tensor values = Flat(parameter.value, name);
  int64_t next = 0;
  for (const Slice& box : holding.boxes) {
    tensors.push_back({CheckedName(name), TensorKind::kParameter, holding.spec, box,
                       !parameter.counted, values.narrow(0, next, box.count)});
    next += box.count;
  }
}

/// Adds the moments of a parameter. The optimizer's state may cover only a part of the flat buffer;
/// which part follows from the position of its values in memory.
void AddMoments(const PlacedParameter& parameter, const std::string& name, const Holding& holding,
                const OptimizerState& state, std::vector<StateTensor>& tensors) {
  const at::Tensor value = parameter.value.detach(), flat = state.buffer.values;
  if (!flat.is_alias_of(value)) return;
  const int64_t flat_begin = flat.storage_offset(), flat_end = flat_begin + flat.numel();
  for (const Moment& moment : state.moments) {
    int64_t next = value.storage_offset();
    for (const Slice& box : holding.boxes) {
      const int64_t first = next;
      next += box.count;
      const int64_t begin = std::max(first, flat_begin), end = std::min(next, flat_end);
      if (begin >= end) continue;
      StateTensor& tensor = tensors.emplace_back();
      tensor.name = CheckedName(Str(name, "#", moment.name));
      tensor.kind = TensorKind::kMoment;
      tensor.spec = {holding.spec.shape, SpecOf(moment.values).dtype};
      tensor.slice = box;
      tensor.slice.begin = begin - first;
      tensor.slice.count = end - begin;
      tensor.is_copy = !parameter.counted;
      tensor.memory = moment.values.narrow(0, begin - flat_begin, end - begin);
    }
  }
}

/// Adds the state that the optimizer keeps for the parameter as a whole.
void AddFactors(const PlacedParameter& parameter, const std::string& name,
                const OptimizerState& state, std::vector<StateTensor>& tensors) {
  for (const Factor& factor : state.factors) {
    if (factor.path != parameter.path) continue;
    const TensorSpec spec = SpecOf(factor.values);
    tensors.push_back({CheckedName(Str(name, "#", factor.name)), TensorKind::kMoment, spec,
                       Slice::Whole(spec.shape), !parameter.counted, Flat(factor.values, name)});
  }
}

StateTensor StateOfBuffer(const std::string& name, const at::Tensor& values) {
  const TensorSpec spec = SpecOf(values);
  return {CheckedName(name), TensorKind::kBuffer, spec, Slice::Whole(spec.shape),
          /*is_copy=*/false, Flat(values, name)};
}

/// Reads the box of which the slice is a part into new memory, and returns the slice's elements.
at::Tensor ReadBox(const Checkpoint& save, const SavedTensor& saved, const Slice& slice) {
  const Slice box = Slice::Box(slice.offset, slice.shape);
  at::Tensor whole = EmptyTensors({{slice.shape, saved.spec.dtype}}, at::kCPU)[0];
  save.Read(saved, box, whole.mutable_data_ptr());
  return whole.flatten().narrow(0, slice.begin, slice.count);
}

}  // namespace

int64_t StateTensor::bytes() const {
  if (!packed) return static_cast<int64_t>(memory.nbytes());
  return static_cast<int64_t>(packed->codes().nbytes() + packed->scales().nbytes());
}

std::vector<StateTensor> InMemory(const std::vector<StateTensor>& tensors) {
  std::vector<StateTensor> all;
  for (const StateTensor& tensor : tensors) {
    if (!tensor.packed) {
      all.push_back(tensor);
      continue;
    }
    for (const auto& [name, memory] : {std::pair("codes", tensor.packed->codes()),
                                       std::pair("scales", tensor.packed->scales())}) {
      const TensorSpec spec = SpecOf(memory);
      all.push_back({Str(tensor.name, "#", name), TensorKind::kParameter, spec,
                     Slice::Whole(spec.shape), tensor.is_copy, memory});
    }
  }
  return all;
}

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

const std::string& SavedName(const PlacedParameter& parameter, const TiePaths& ties) {
  return parameter.tie.empty() ? parameter.path : ties.at(parameter.tie);
}

std::vector<StateTensor> StateOf(Stage& stage, const Optimizer& optimizer, const TiePaths& ties,
                                 const AxisComm* axis) {
  std::vector<StateTensor> tensors;
  const std::vector<OptimizerState> states = optimizer.state();
  for (const PlacedParameter& parameter : stage.parameters().parameters()) {
    const std::string& name = SavedName(parameter, ties);
    const Holding holding = HoldingOf(parameter, axis);
    AddValues(parameter, name, holding, tensors);
    if (!parameter.gradient.defined()) continue;
    for (const OptimizerState& state : states) {
      AddMoments(parameter, name, holding, state, tensors);
      AddFactors(parameter, name, state, tensors);
    }
  }
  for (const StageLayer& layer : stage.layers()) {
    for (const LayerBuffer& buffer : layer.layer->buffers()) {
      tensors.push_back(StateOfBuffer(Str(layer.path, ".", buffer.name), buffer.value));
    }
  }
  return tensors;
}

void LoadTensor(const Checkpoint& save, const StateTensor& tensor) {
  STRATA_CHECK(!tensor.packed) << tensor.name;  // no save holds the base of `adapt`
  const at::NoGradGuard no_grad;
  const SavedTensor& saved = FindSaved(save, tensor.name, tensor.spec);
  const bool is_as_saved = saved.spec.dtype == tensor.spec.dtype;
  if (is_as_saved && tensor.memory.is_cpu() && tensor.slice.is_box()) {
    return save.Read(saved, tensor.slice, tensor.memory.mutable_data_ptr());
  }
  tensor.memory.copy_(ReadBox(save, saved, tensor.slice));
}

}  // namespace strata
