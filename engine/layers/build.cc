// BuildLayer() and BuildLoss(): they look up the maker of a type in the tables of the layer
// families (families.h). BuildLayer() then applies what is common to all types: a script's initial
// values, low-rank parts, the rank's share of the parameters, a tie's forward, a dtype of the
// layer's own, freezing, and packing.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/tensors/dtype.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/composite.h"
#include "engine/layers/families.h"
#include "engine/layers/init_type.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/low_rank.h"
#include "engine/layers/own_type.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/parts.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

/// Finds the type's row in the tables of all families; null if there is none.
const LayerEntry* FindEntry(const std::string& type) {
  const std::string name = TableName(type);
  for (const auto table : {LinearLayers, ConvolutionLayers, EmbeddingLayers, NormalizationLayers,
                           ActivationLayers, DropoutLayers, PoolingLayers, ShapingLayers,
                           ConnectionLayers, ContainerLayers, AttentionLayers, TransformerLayers,
                           LlamaLayers, PairLayers, RecurrentLayers, SpatialLayers}) {
    for (const LayerEntry& entry : table()) {
      if (entry.type == name) return &entry;
    }
  }
  return nullptr;
}

/// A layer without parameters that calls one function, mostly of ATen.
class CallLayer : public UnaryLayer {
 public:
  CallLayer(const LayerSpec& spec, const LayerEntry& entry)
      : args_(spec.args), call_(entry.call), keeps_(KeepsOf(spec)) {
    if (entry.in_place && spec.Bool("inplace")) in_place_ = entry.in_place;
  }

  OutputMemory output_memory() const override {
    if (keeps_ == Keeps::kNothing) return OutputMemory::kInput;
    return keeps_ == Keeps::kOutput ? OutputMemory::kKept : OutputMemory::kFresh;
  }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override {
    if (!in_place_) return call_(x, args_);
    // If x is a view, autograd gives the gradient the strides of the view's base. A gradient that
    // crosses a cut between stages never has these strides, so the bits could depend on the cuts.
    const bool has_base = x.requires_grad() && x.is_view();
    if (may_overwrite_input_ && !has_base) return in_place_(x, args_);
    at::Tensor y = call_(x, args_);
    // An in-place result has the strides of the input. Out of place, ATen may choose other strides
    // for dims of size 1, and later operators choose their kernels by the strides. So the result
    // must have x's strides in both cases.
    return y.strides() == x.strides() ? y : in_place_(x.clone(), args_);
  }

 private:
  const Value args_;
  const UnaryCall call_;
  UnaryCall in_place_ = nullptr;  // null: never in place
  const Keeps keeps_;
};

/// A layer with a type of its own (own_type.h). It converts floating inputs to `type`, and the
/// outputs of `inside` to the type of the first floating input, or to float32 if there is none. The
/// parameters are those of `inside` with the same names, and keep their type whatever type the
/// stage computes in.
class TypedLayer : public CompositeLayer {
 public:
  TypedLayer(std::unique_ptr<Layer> inside, at::ScalarType type)
      : inside_(Adopt("", std::move(inside))), type_(type) {
    for (Parameter& parameter : parameters_) {
      parameter.keeps_type = true;
      // Values that were not made by init.h may have another type.
      const bool trains = parameter.value.requires_grad();
      parameter.value = parameter.value.detach().to(type).requires_grad_(trains);
    }
    for (LayerBuffer& buffer : buffers_) {
      if (buffer.value.is_floating_point()) buffer.value = buffer.value.to(type);
    }
    OnBound();
  }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    Tensors taken = inputs;
    at::ScalarType given = at::kFloat;
    for (auto x = taken.rbegin(); x != taken.rend(); ++x) {
      if (!x->is_floating_point()) continue;
      given = x->scalar_type();
      *x = x->to(type_);
    }
    Tensors outputs = inside_->Forward(taken, pass);
    for (at::Tensor& y : outputs) {
      if (y.scalar_type() == type_) y = y.to(given);
    }
    return outputs;
  }
  void CheckInput(const Tensors& inputs) const override { inside_->CheckInput(inputs); }
  /// If the input may be overwritten, so may the tensor converted from it, which is the input
  /// itself if its type is `type`.
  void set_may_overwrite_input(bool may) override { inside_->set_may_overwrite_input(may); }
  OutputMemory output_memory() const override { return inside_->output_memory(); }

 private:
  Layer* const inside_;
  const at::ScalarType type_;
};

void Freeze(const LayerSpec& spec, Layer& layer) {
  if (!spec.frozen && spec.frozen_parameters.empty()) return;
  for (Parameter& parameter : layer.parameters()) {
    if (!spec.IsFrozen(parameter.name)) continue;
    parameter.frozen = true;
    parameter.value.requires_grad_(false);
  }
  layer.OnBound();
}

/// Replaces the value of each shared parameter by this rank's share of it. Containers are skipped,
/// since their children have done so already.
void ReduceToShares(Layer& layer, const LayerSpec& spec, const AxisComm& axis) {
  if (SplitOf(spec).empty() || !spec.children.empty()) return;
  const at::NoGradGuard no_grad;
  auto parameter = layer.parameters().begin();
  for (const ParameterSpec& declared : ParametersOf(spec)) {
    STRATA_CHECK(!declared.buffer && parameter->name == declared.name) << declared.name;
    if (declared.share) {
      parameter->share = declared.share;
      parameter->value = CopyShare(parameter->value, *declared.share, axis.rank(), axis.size())
                             .set_requires_grad(true);
    } else {
      parameter->partial_grad = SplitOf(spec) == "sequence";
    }
    ++parameter;
  }
  layer.OnBound();
}

}  // namespace

std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script,
                                  std::shared_ptr<AxisComm> axis) {
  const LayerEntry* entry = spec.scripted ? nullptr : FindEntry(spec.type);
  STRATA_CHECK(spec.scripted ? script != nullptr : entry != nullptr) << "no layer " << spec.type;
  const std::optional<DType> own = OwnType(spec);
  std::optional<InitTypeScope> type;  // not set: the type of the surrounding layer holds
  if (own) type.emplace(ToScalarType(*own));
  std::unique_ptr<Layer> layer = !entry        ? script->BuildLayer(spec)
                                 : entry->call ? std::make_unique<CallLayer>(spec, *entry)
                                               : entry->make(spec, {script, axis});
  const bool has_init = !spec.scripted && spec.init.id >= 0;
  STRATA_CHECK(script || (!has_init && spec.tied_forward.where.empty())) << spec.type;
  if (has_init) {  // the script sees whole values, so this comes before the rank takes its share
    LayerSpec untied = spec;
    untied.tied_forward = {};
    layer = script->WithForward(untied, std::move(layer));
  }
  layer = WithLowRank(spec, std::move(layer));
  if (axis && !spec.scripted) ReduceToShares(*layer, spec, *axis);
  if (!spec.tied_forward.where.empty()) {
    layer = script->WithForward(spec, std::move(layer));
  }
  if (own) layer = std::make_unique<TypedLayer>(std::move(layer), ToScalarType(*own));
  Freeze(spec, *layer);
  PackWeights(spec, *layer);
  return layer;
}

std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script,
                                std::shared_ptr<AxisComm> axis) {
  if (spec.scripted) {
    STRATA_CHECK(script) << "no script for the loss " << spec.type;
    return script->BuildLoss(spec);
  }
  const auto entry = std::ranges::find(Losses(), spec.type, &LossEntry::type);
  STRATA_CHECK(entry != Losses().end()) << "no loss " << spec.type;
  return entry->make(spec, {script, std::move(axis)});
}

}  // namespace strata
