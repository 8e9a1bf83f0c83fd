// How class losses and the metric "accuracy" read outputs and labels: which dim of the output holds
// the classes, and which labels count.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "engine/layers/layer.h"
#include "engine/layers/targets.h"

namespace strata {

/// FittingClassDims() of tensors: the dim of `output` that holds the classes, where exactly one
/// fits the target. `given` is GivenClassDim() of the loss, or class_dim of eval. `loss`: its type,
/// or empty for a function of the script. Only CrossEntropyLoss takes other targets than labels.
/// Throws ConfigError where no dim fits, or several do.
int64_t ClassDim(at::IntArrayRef output, const at::Tensor& target, std::optional<int64_t> given,
                 const std::string& loss);

/// Throws ConfigError unless all indices are from 0 to count - 1: "expected a WHAT from 0 to 95,
/// got 97 (there are 96 WHOSE)". Reads the values, so the indices should be in host memory.
void RequireIndices(const at::Tensor& indices, int64_t count, const char* what, const char* whose);

/// Counts the labels that equal `best`, the classes with the greatest score, a tensor of the same
/// shape. Labels equal to `ignore_index` are left out.
Hits CountHits(const at::Tensor& best, const at::Tensor& labels, int64_t ignore_index);

/// The classes 0 and 1 for the targets of a loss with a ClassThreshold() (targets.h), which may
/// have any dtype: a target above 0.5 is class 1. Returns int64 labels in the target's shape.
/// Throws ConfigError unless that is the output's shape.
at::Tensor TwoClassLabels(const at::Tensor& output, const at::Tensor& target);

/// CountHits() for the labels of a function of the script. `class_dim` is eval.class_dim.
Hits CountLabelHits(const at::Tensor& output, const at::Tensor& labels,
                    std::optional<int64_t> class_dim);

}  // namespace strata
