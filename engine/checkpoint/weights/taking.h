// Taking: which of a job's tensors published weights have, and what does not fit.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// What some of a job's tensors found. Those of several ranks are added up.
struct Taken {
  std::vector<std::string> missing, unfit;  ///< one line each, for people
  std::vector<std::string> used;            ///< the source's names
  std::vector<std::string> excepted;        ///< the job's names, which were not looked up

  /// Adds what another list of tensors found; a line that is there stays one.
  void Add(const Taken& other);
  std::string ToJson() const;
  static Taken FromJson(std::string_view json);
};

/// The tensors of these layers that WantedTensor::may_miss is true of: BatchNorm's
/// num_batches_tracked where it has a momentum, and so no use for the count. Weights of PyTorch
/// before 0.4.1 have none.
std::set<std::string> TensorsThatMayMiss(const std::vector<LayerSpec>& layers);

/// Looks the tensors up; those that are there are added to `found`.
Taken Take(const MappedWeights& weights, const std::vector<WantedTensor>& wanted,
           std::vector<MappedTensor>& found);

/// What does not fit, a line for each kind: missing, of another shape, and those of the source that
/// nobody takes. Empty when all fits.
std::vector<std::string> TroublesWith(const MappedWeights& weights, const Taken& taken);

/// Throws ConfigError for weights of which no tensor was found.
[[noreturn]] void RefuseAll(const MappedWeights& weights, const Taken& taken);

}  // namespace strata
