// Losses of several targets, or of none.
#pragma once

#include <vector>

#include "engine/spec/layers/layer_spec.h"

namespace strata {

/// True for a CTCLoss, whose targets are labels and lengths, and a TripletMarginLoss, which needs
/// no target.
bool TakesSeveralTargets(const LayerSpec& loss);

/// CheckLoss() (layers.h) for any number of targets.
void CheckTargets(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
                  const TensorSpecs& output, const TensorSpecs& targets);

}  // namespace strata
