// The table's side of every layer: one maker per family file. Only build.cc uses them.
#pragma once

#include <memory>

#include "engine/layers/layer.h"

namespace strata {

/// Makers take the layer's spec, whose args are complete and checked. `script` builds what is
/// scripted inside a container. Initial values are drawn in PyTorch's order.
using LayerMaker = std::unique_ptr<Layer> (*)(const LayerSpec& spec, LayerScript* script);
using LossMaker = std::unique_ptr<Loss> (*)(const LayerSpec& spec);

std::unique_ptr<Layer> MakeLinear(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeConv(const LayerSpec& spec, LayerScript* script);  // 1d, 2d, transposed
std::unique_ptr<Layer> MakeEmbedding(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeNorm(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeActivation(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeDropout(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakePool(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeShape(const LayerSpec& spec, LayerScript* script);  // Flatten, Identity
std::unique_ptr<Layer> MakeConnection(const LayerSpec& spec, LayerScript* script);  // skip, join
std::unique_ptr<Layer> MakeSequential(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeResidual(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeAttention(const LayerSpec& spec, LayerScript* script);
std::unique_ptr<Layer> MakeTransformer(const LayerSpec& spec, LayerScript* script);

std::unique_ptr<Loss> MakeClassLoss(const LayerSpec& spec);    // CrossEntropyLoss, NLLLoss
std::unique_ptr<Loss> MakeElementLoss(const LayerSpec& spec);  // MSELoss, L1Loss, BCEWithLogitsLoss

}  // namespace strata
