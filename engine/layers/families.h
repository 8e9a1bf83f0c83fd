// The tables of the families: which function makes which type of layer. Only build.cc uses them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "engine/layers/layer.h"

namespace strata {

/// What a maker knows besides the spec.
struct BuildContext {
  LayerScript* script;             ///< builds scripted layers inside a container; may be null
  std::shared_ptr<AxisComm> axis;  ///< the model axis; null when it has one rank
};

/// A maker. The arguments in `spec` are complete and checked. Initial values are drawn whole and in
/// PyTorch's order; BuildLayer() takes the rank's share of them afterwards.
template <class T>
using Maker = std::unique_ptr<T> (*)(const LayerSpec& spec, const BuildContext& context);

/// The forward pass of a layer without parameters, for one tensor.
using UnaryCall = at::Tensor (*)(const at::Tensor& x, const Value& args);

/// A type of layer: a maker, or a call and perhaps its form that may overwrite x (`inplace =
/// true`). The in-place form must leave outputs and gradients as they are, to the bit.
struct LayerEntry {
  constexpr LayerEntry(std::string_view type, Maker<Layer> make) : type(type), make(make) {}
  constexpr LayerEntry(std::string_view type, UnaryCall call, UnaryCall in_place = nullptr)
      : type(type), call(call), in_place(in_place) {}

  std::string_view type;
  Maker<Layer> make = nullptr;
  UnaryCall call = nullptr;
  UnaryCall in_place = nullptr;
};

/// A maker for a class that is constructed from spec and context, or from the arguments.
template <class T>
std::unique_ptr<Layer> New(const LayerSpec& spec, const BuildContext& context) {
  if constexpr (std::is_constructible_v<T, const LayerSpec&, const BuildContext&>) {
    return std::make_unique<T>(spec, context);
  } else {
    return std::make_unique<T>(spec.args);
  }
}

using LayerTable = std::span<const LayerEntry>;
LayerTable LinearLayers();
LayerTable ConvolutionLayers();
LayerTable EmbeddingLayers();
LayerTable NormalizationLayers();
LayerTable ActivationLayers();
LayerTable DropoutLayers();
LayerTable PoolingLayers();
LayerTable ShapingLayers();
LayerTable ConnectionLayers();
LayerTable ContainerLayers();
LayerTable AttentionLayers();
LayerTable TransformerLayers();
LayerTable LlamaLayers();
LayerTable PairLayers();
LayerTable RecurrentLayers();
LayerTable SpatialLayers();

struct LossEntry {
  std::string_view type;
  Maker<Loss> make;
};
std::span<const LossEntry> Losses();

}  // namespace strata
