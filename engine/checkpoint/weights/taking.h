// Taking: which of a job's tensors published weights have, and what does not fit.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value/value.h"
#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// What some of a job's tensors found. Those of several ranks are added up.
struct Taken {
  std::vector<std::string> missing, unfit;  ///< one line each, for people
  std::vector<std::string> used;            ///< the source's names
  bool empty() const { return missing.empty() && unfit.empty() && used.empty(); }

  /// Adds what another list of tensors found; a line that is there stays one.
  void Add(const Taken& other);
  std::string ToJson() const;
  static Taken FromJson(std::string_view json);
};

/// Looks the tensors up; those that are there are added to `found`.
Taken Take(const MappedWeights& weights, const std::vector<WantedTensor>& wanted,
           std::vector<MappedTensor>& found);

/// What does not fit, a line for each kind: missing, of another shape, and those of the source that
/// nobody takes. Empty when all fits.
std::vector<std::string> TroublesWith(const MappedWeights& weights, const Taken& taken);

}  // namespace strata
