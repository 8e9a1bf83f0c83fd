// Taking: finds which of a job's tensors published weights have, and which do not fit.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The result of looking up some of a job's tensors. The results of several ranks are merged.
struct Taken {
  std::vector<std::string> missing, unfit;  ///< one line each, for people
  std::vector<std::string> used;            ///< names in the source
  std::vector<std::string> excepted;        ///< names in the job that were not looked up

  /// Merges the result of another rank; a line that both have is kept once.
  void Add(const Taken& other);
  std::string ToJson() const;
  static Taken FromJson(std::string_view json);
};

/// The names of tensors for which WantedTensor::may_miss is true: num_batches_tracked of a
/// BatchNorm that has a momentum, and therefore does not use the count. Weights of PyTorch before
/// 0.4.1 do not have it.
std::set<std::string> TensorsThatMayMiss(const std::vector<LayerSpec>& layers);

/// Looks up the tensors. Those that exist and fit are appended to `found`.
Taken Take(const MappedWeights& weights, const std::vector<WantedTensor>& wanted,
           std::vector<MappedTensor>& found);

/// The problems, one line per kind: missing tensors, those of another shape, and those of the
/// source that are not used. Empty if there are none.
std::vector<std::string> TroublesWith(const MappedWeights& weights, const Taken& taken);

/// Throws ConfigError for weights in which none of the job's tensors was found.
[[noreturn]] void RefuseAll(const MappedWeights& weights, const Taken& taken);

}  // namespace strata
