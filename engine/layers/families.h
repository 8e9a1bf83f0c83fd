// The tables of layer families: they map the name of each layer type to the function that makes it.
// Only build.cc uses them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "engine/layers/layer.h"

namespace strata {

/// What a maker function gets in addition to the layer's spec.
struct BuildContext {
  LayerScript* script;             ///< builds scripted layers inside a container; may be null
  std::shared_ptr<AxisComm> axis;  ///< the model axis; null when it has one rank
};

/// A function that makes a layer or loss. The arguments in `spec` are complete and checked. The
/// maker draws the initial values of the whole layer in PyTorch's order; afterwards BuildLayer()
/// reduces them to the rank's share.
template <class T>
using Maker = std::unique_ptr<T> (*)(const LayerSpec& spec, const BuildContext& context);

/// The forward pass of a layer without parameters, for one tensor.
using UnaryCall = at::Tensor (*)(const at::Tensor& x, const Value& args);

/// A row of a table: a layer type with its maker or, for a layer without parameters, with the
/// function that it calls. `in_place` is the form of that function that may overwrite x (`inplace =
/// true`); its outputs and gradients must have the same bits.
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
