// First computes the size of each flat buffer (Region::Reserve), then allocates the buffers and
// moves the parameters in. The gradients are allocated last, when the layers' original memory is
// free again, so that building needs no more memory than a training step. If that memory is one
// piece (ReserveMemory() in build_stage.cc), the gradients take it: its pages need not be cleared
// again.
#include "engine/runtime/stage/flat_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/progress_line.h"
#include "engine/base/size_class.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"

namespace strata {
namespace {

int64_t Padded(int64_t elements) {
  return (elements + FlatParameters::kPadding - 1) / FlatParameters::kPadding *
         FlatParameters::kPadding;
}

/// The bytes that a tensor like `values` takes, with the allocator's header.
int64_t BytesOf(const at::Tensor& values) {
  return AllocatedBytes(static_cast<int64_t>(values.nbytes())) + static_cast<int64_t>(kBlockUnit);
}

/// A view of a flat buffer for a parameter, with a version counter of its own. With plain views, a
/// change of one parameter would invalidate the graphs of all.
at::Tensor ViewOf(const at::Tensor& flat, int64_t offset, const at::Tensor& parameter) {
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()).variable_data();
}

/// Assigns the places of one flat buffer, one after the other.
class Region {
 public:
  void Reserve(const at::Tensor& value) { size_ += Padded(value.numel()); }

  /// Allocates the values. Gradients are allocated later.
  FlatBuffer Allocate(int index, int group, at::ScalarType type, at::Device device) {
    index_ = index;
    buffer_ = {group, at::empty({size_}, at::dtype(type).device(device)), {}};
    return buffer_;
  }
  void set_seen(const at::Tensor& seen) { seen_ = seen; }

  /// Moves the parameter to the next place.
  void Place(Parameter& parameter, PlacedParameter& placed) {
    placed.value = ViewOf(buffer_.values, next_, parameter.value);
    placed.value.copy_(parameter.value.detach());
    const int64_t size = placed.value.numel(), padding = Padded(size) - size;
    if (padding > 0) buffer_.values.narrow(0, next_ + size, padding).zero_();
    placed.buffer = index_;
    placed.offset = next_;
    parameter.value =
        seen_.is_same(buffer_.values) ? placed.value : ViewOf(seen_, next_, placed.value);
    parameter.value.set_requires_grad(true);
    next_ += Padded(placed.value.numel());
  }

 private:
  int index_ = 0;  // index of the buffer
  int64_t size_ = 0;
  int64_t next_ = 0;
  FlatBuffer buffer_;
  at::Tensor seen_;  // the tensor that layers see: the values, or their copy
};

struct Types {
  at::ScalarType stored;
  at::ScalarType seen;
  auto operator<=>(const Types&) const = default;
};

/// The types of a parameter. Half precision applies to floating-point parameters that do not have
/// keeps_type.
Types TypesOf(const Parameter& parameter, const ParameterTypes& types) {
  const at::ScalarType own = parameter.value.scalar_type();
  // BuildStage() may have converted it to the stored type already.
  const bool has_layers_type = own == at::kFloat || own == types.stored;
  if (parameter.keeps_type || !has_layers_type) return {own, own};
  return {types.stored, types.compute};
}

using RegionKey = std::pair<int, Types>;  // first: the optimizer group

const TiedParameter* FindTied(const StageLayer& layer, const Parameter& parameter) {
  const auto found = std::ranges::find(layer.tied, parameter.name, &TiedParameter::name);
  return found == layer.tied.end() ? nullptr : &*found;
}

/// Tracks the first use of each tie on this stage.
class FirstUses {
 public:
  /// True if another layer of the stage used the tie before.
  bool IsLater(const StageLayer& layer, const Parameter& parameter) {
    const TiedParameter* tied = FindTied(layer, parameter);
    if (!tied || parameter.frozen) return false;
    const auto [first, is_new] = first_.emplace(tied->tie, &layer);
    return !is_new && first->second != &layer;
  }

 private:
  std::map<std::string, const StageLayer*> first_;
};

template <class Function>
void ForEachParameter(std::vector<StageLayer>& layers, const Function& function) {
  for (StageLayer& layer : layers) {
    for (Parameter& parameter : layer.layer->parameters()) function(layer, parameter);
  }
}

/// Makes sure that the gradient has memory when autograd adds to it. The nodes of our own layers
/// see to that themselves (weight_node.cc) and give autograd nothing to add.
void NeedBeforeAutogradAdds(const Parameter& parameter) {
  parameter.value.register_hook([gradient = parameter.grad](const at::Tensor& added) {
    if (added.defined()) NeedMemory(gradient);
  });
}

/// True if the first product of a step may overwrite the parameter's gradient.
bool IsOfProducts(const Parameter& parameter, const PlacedParameter& place) {
  return parameter.only_products && place.tie.empty() &&
         place.value.numel() >= FlatParameters::kLeastStale;
}

}  // namespace

FlatParameters::FlatParameters(std::vector<StageLayer>& layers, const GroupOf& group_of,
                               at::Device device, const ParameterTypes& types,
                               int64_t block_bytes) {
  const auto key = [&](const StageLayer& layer, const Parameter& parameter) {
    return RegionKey(group_of(layer.index, parameter.name), TypesOf(parameter, types));
  };
  std::map<RegionKey, Region> regions;
  FirstUses uses;
  ForEachParameter(layers, [&](const StageLayer& layer, const Parameter& parameter) {
    if (parameter.frozen || uses.IsLater(layer, parameter)) return;
    regions[key(layer, parameter)].Reserve(parameter.value);
  });
  for (auto& [group_and_types, region] : regions) {
    const auto& [group, of] = group_and_types;
    const int index = static_cast<int>(buffers_.size());
    buffers_.push_back(region.Allocate(index, group, of.stored, device));
    region.set_seen(InType(buffers_.back().values, of.seen));
    if (of.seen != of.stored) buffers_.back().copy = copies_.back().copy;
  }
  int64_t elements = 0;
  for (const FlatBuffer& buffer : buffers_) elements += buffer.values.numel();
  ProgressLine line("placing parameters", elements);
  for (StageLayer& layer : layers) {
    for (Parameter& parameter : layer.layer->parameters()) {
      PlacedParameter& placed = parameters_.emplace_back();
      if (const TiedParameter* tied = FindTied(layer, parameter)) {
        placed.tie = tied->tie;
        placed.counted = tied->is_first_use;
      }
      if (parameter.packed) {
        parameter.packed->To(device);
        placed.packed = parameter.packed;
        placed.value = PackedValue(parameter.value.sizes(), at::kFloat);
        parameter.value = PackedValue(parameter.value.sizes(), TypesOf(parameter, types).seen);
      } else if (parameter.frozen) {
        const Types of = TypesOf(parameter, types);
        placed.value = parameter.value.detach().to(device, of.stored);
        parameter.value = InType(placed.value, of.seen);
      } else if (uses.IsLater(layer, parameter)) {
        ShareFirstUse(parameter, placed);
      } else {
        regions[key(layer, parameter)].Place(parameter, placed);
      }
      placed.layer = layer.index;
      placed.path = Str(layer.path, ".", parameter.name);
      placed.leaf = parameter.value;
      if (!parameter.packed && parameter.value.scalar_type() != placed.value.scalar_type()) {
        parameter.original = placed.value;
      }
      placed.share = parameter.share;
      placed.partial_grad = parameter.partial_grad;
      line.Advance(parameter.value.numel());
    }
    layer.layer->OnBound();  // releases the layer's references to its original memory
  }
  int64_t gradients = 0;
  for (const FlatBuffer& buffer : buffers_) {
    if (block_bytes == 0) gradients += BytesOf(buffer.values);
  }
  ReleaseFreeMemory(gradients);
  AddGradients(layers, block_bytes);
  ReleaseFreeMemory();
  for (StageLayer& layer : layers) {
    for (LayerBuffer& buffer : layer.layer->buffers()) {
      buffer.value = buffer.value.to(device);
      if (buffer.value.is_floating_point()) state_.push_back(buffer.value);
    }
    layer.layer->OnBound();
  }
}

/// Cuts the buffers into blocks of at least `block_bytes`; 0: of any size, always in memory.
void FlatParameters::AddBlocks(int64_t block_bytes) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    FlatBuffer& buffer = buffers_[i];
    const int64_t all = buffer.values.numel();
    if (block_bytes == 0) {
      buffer.gradients = at::zeros_like(buffer.values);
      blocks_.push_back({.buffer = i, .end = all, .gradients = buffer.gradients});
      continue;
    }
    std::vector<int64_t> bounds = {0};
    for (const PlacedParameter& parameter : parameters_) {
      const bool is_full =
          (parameter.offset - bounds.back()) * buffer.values.element_size() >= block_bytes;
      if (parameter.buffer == static_cast<int>(i) && is_full) bounds.push_back(parameter.offset);
    }
    bounds.push_back(all);
    for (size_t k = 0; k + 1 < bounds.size(); ++k) {
      auto memory =
          std::make_shared<LateMemory>(bounds[k + 1] - bounds[k], buffer.values.options(),
                                       [this, block = blocks_.size()] { ClearBlock(block); });
      blocks_.push_back({.buffer = i,
                         .begin = bounds[k],
                         .end = bounds[k + 1],
                         .gradients = memory->tensor(),
                         .memory = memory});
    }
  }
}

/// Gives each trainable parameter its gradient: a view of a block, or a separate tensor for a tie's
/// later use.
void FlatParameters::AddGradients(std::vector<StageLayer>& layers, int64_t block_bytes) {
  AddBlocks(block_bytes);
  added_.resize(blocks_.size() + 1);
  // For each block: the number of elements that are covered by `added_` or `products_`.
  std::vector<int64_t> done(blocks_.size());
  const auto add_until = [&](size_t block, int64_t end) {
    const int64_t begin = done[block];
    if (end > begin)
      added_[block].push_back(blocks_[block].gradients.narrow(0, begin, end - begin));
  };
  auto placed = parameters_.begin();
  ForEachParameter(layers, [&](const StageLayer& layer, Parameter& parameter) {
    PlacedParameter& place = *placed++;
    if (parameter.frozen) return;
    if (place.buffer < 0) {
      parameter.grad = added_.back().emplace_back(at::zeros_like(place.value));
    } else {
      const auto is_its = [&](const GradientBlock& block) {
        return block.buffer == static_cast<size_t>(place.buffer) && place.offset < block.end;
      };
      const auto found = std::ranges::find_if(blocks_, is_its);
      const auto block = static_cast<size_t>(found - blocks_.begin());
      const int64_t offset = place.offset - found->begin;
      parameter.grad = ViewOf(found->gradients, offset, place.value);
      if (IsOfProducts(parameter, place)) {
        add_until(block, offset);
        done[block] = offset + place.value.numel();
        products_.push_back({layer.index, parameter.grad, block});
      }
      if (found->memory) NeedBeforeAutogradAdds(parameter);
    }
    place.gradient = parameter.grad;
  });
  for (size_t i = 0; i < blocks_.size(); ++i) add_until(i, blocks_[i].end - blocks_[i].begin);
}

at::Tensor FlatParameters::InType(const at::Tensor& original, at::ScalarType type) {
  if (original.scalar_type() == type) return original;
  const at::Tensor copy = at::zeros_like(original, at::dtype(type));
  copies_.push_back({original, std::make_shared<ValueCopy>(ValueCopy{copy})});
  return copy;
}

void FlatParameters::ShareFirstUse(Parameter& parameter, PlacedParameter& placed) {
  const auto first = std::ranges::find(parameters_, placed.tie, &PlacedParameter::tie);
  placed.value = first->value;
  parameter.value = first->leaf.variable_data().set_requires_grad(true);
}

void FlatParameters::RefreshCopies() {
  for (const auto& [original, copy] : copies_) {
    if (!std::exchange(copy->is_fresh, false)) copy->values.copy_(original);
  }
}

void FlatParameters::MarkCopiesStale() {
  for (const Copy& copy : copies_) copy.copy->is_fresh = false;
}

void FlatParameters::ClearGradients() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].memory) {
      ClearBlock(i);
      continue;
    }
    blocks_[i].is_summed = false;
    blocks_[i].memory->Drop();
    if (blocks_[i].share) blocks_[i].share->Drop();
  }
  if (!added_.back().empty()) at::_foreach_zero_(added_.back());
}

void FlatParameters::ClearBlock(size_t block) {
  STRATA_CHECK(!blocks_[block].is_summed) << "a gradient comes after the sum of block " << block;
  const at::NoGradGuard no_grad;
  if (!added_[block].empty()) at::_foreach_zero_(added_[block]);  // on a GPU a launch or two
  for (const Product& product : products_) {
    if (product.block == block) stale_->Mark(product.gradient);
  }
}

void FlatParameters::FinishGradients(int layer) {
  for (const Product& product : products_) {
    if (product.layer < layer || !HasMemory(product.gradient)) continue;
    if (stale_->Take(product.gradient)) product.gradient.zero_();
  }
}

}  // namespace strata
