// The functions that make built layers and losses of specs, one for each file of the package. Only
// build.cc uses them; its tables say which function makes which type.
#pragma once

#include <memory>

#include "engine/layers/layer.h"

namespace strata {

/// What a maker knows besides the spec.
struct BuildContext {
  LayerScript* script;             ///< builds scripted layers inside a container; may be null
  std::shared_ptr<AxisComm> axis;  ///< the model axis; null when it has one rank
};

/// A maker. The arguments in `spec` are complete and checked. Initial values are drawn whole and in
/// PyTorch's order; BuildLayer() takes the rank's share of them afterwards.
using LayerMaker = std::unique_ptr<Layer> (*)(const LayerSpec& spec, const BuildContext& context);
using LossMaker = std::unique_ptr<Loss> (*)(const LayerSpec& spec, const BuildContext& context);

std::unique_ptr<Layer> MakeLinear(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeConv(const LayerSpec& spec,
                                const BuildContext& context);  // 1d, 2d, transposed
std::unique_ptr<Layer> MakeEmbedding(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeNorm(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeActivation(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeDropout(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakePool(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeShape(const LayerSpec& spec,
                                 const BuildContext& context);  // Flatten, Identity
std::unique_ptr<Layer> MakeConnection(const LayerSpec& spec,
                                      const BuildContext& context);  // skip, join
std::unique_ptr<Layer> MakeSequential(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeResidual(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeAttention(const LayerSpec& spec, const BuildContext& context);
std::unique_ptr<Layer> MakeTransformer(const LayerSpec& spec, const BuildContext& context);

std::unique_ptr<Loss> MakeClassLoss(const LayerSpec& spec,
                                    const BuildContext& context);  // CrossEntropyLoss, NLLLoss
std::unique_ptr<Loss> MakeElementLoss(
    const LayerSpec& spec, const BuildContext& context);  // MSELoss, L1Loss, BCEWithLogitsLoss

}  // namespace strata
