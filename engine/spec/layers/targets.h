// Losses of several targets, or of none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/spec/layers/layer_spec.h"

namespace strata {

/// True for a CTCLoss, whose targets are labels and lengths, and a TripletMarginLoss, which needs
/// no target.
bool TakesSeveralTargets(const LayerSpec& loss);

/// CheckLoss() (layers.h) for any number of targets.
void CheckTargets(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
                  const TensorSpecs& output, const TensorSpecs& targets);

/// True for a loss whose targets are classes, or probabilities of them.
bool IsOfClasses(const LayerSpec& loss);

/// How many classes the output has, for labels that CheckLoss() has let pass.
int64_t ClassesOf(const TensorSpec& output, const TensorSpec& labels);

/// The shape of the output when the inputs are one shorter in `dim`, -1 for the last; empty where
/// the layers cannot take that.
using ShapeWhenShorter = std::function<std::vector<int64_t>(int dim)>;

/// The dim of `output` that holds the classes: 1, as in PyTorch, or the last. It is that which
/// `target` (may be null) does not have. Where both fit, and for probabilities, it is the last if
/// dim 1 follows the length of dim 1 of the inputs and the last dim follows nothing: so are tokens.
/// None for other losses, for outputs of two dims, and where nothing tells.
std::optional<int> ClassDimOf(const LayerSpec& loss, const TensorSpec& output,
                              const TensorSpec* target, const ShapeWhenShorter& when_shorter);

}  // namespace strata
