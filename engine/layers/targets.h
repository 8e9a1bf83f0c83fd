// Checks of a loss's output and targets: which losses take several targets or none, which targets
// are labels, and which dim of the output holds the classes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/layers/layer_spec.h"

namespace strata {

/// PyTorch's default ignore_index: a label with this value is ignored.
inline constexpr int64_t kNoLabel = -100;

/// True for a CTCLoss, whose targets are labels and lengths, and a TripletMarginLoss, which needs
/// no target.
bool TakesSeveralTargets(const LayerSpec& loss);

/// CheckLoss() (layer_types.h) for any number of targets.
void CheckTargets(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
                  const TensorSpecs& output, const TensorSpecs& targets);

/// True for a loss whose targets are classes, or probabilities of them.
bool IsOfClasses(const LayerSpec& loss);

/// The score above which a loss of two classes takes class 1: 0.5 for BCELoss, 0 for
/// BCEWithLogitsLoss. None for other losses.
std::optional<double> ClassThreshold(const LayerSpec& loss);

/// True if `target` may hold labels: its dtype is an integer type.
bool AreLabels(const TensorSpec& target);

/// The dims of the shape `output` that may hold the classes, ascending, for a target of the shape
/// `target`. Labels have the shape of the output without the dim of the classes; probabilities have
/// the whole shape of the output. `given` is what the script says, a dim from 1 on, or from -1 on
/// backwards from the end. Without it there are two readings, and a dim in between has to be said:
///
///   output (N, C), labels (N)                      dim 1
///   output (N, C, d1, ...), labels (N, d1, ...)    dim 1, as in PyTorch
///   output (N, d1, ..., C), labels (N, d1, ...)    the last dim: a row of scores for each token
///
/// Returns no dim if nothing fits, and several dims if the shapes do not decide, as for 6 tokens
/// and 6 classes. Nothing else decides in that case, since layers may fix the length of either dim.
/// So the caller must refuse it.
std::vector<int> FittingClassDims(std::span<const int64_t> output, std::span<const int64_t> target,
                                  bool are_labels, std::optional<int64_t> given);

/// The loss's argument class_dim, else the dim of the classes that planning has found
/// (LayerSpec::class_dim). Both may be negative. None if neither is there.
std::optional<int64_t> GivenClassDim(const LayerSpec& loss);

/// The error for several dims that fit: all readings, and what the script has to say. `target` is a
/// shape as text; `loss` is the type of the loss, or empty for a function of the script, whose
/// metrics go by eval.class_dim.
std::string SeveralClassDims(std::span<const int64_t> output, const std::string& target,
                             const std::vector<int>& fitting, const std::string& loss);

}  // namespace strata
