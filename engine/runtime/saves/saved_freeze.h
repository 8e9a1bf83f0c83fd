// Compares which parameters are frozen in a save and in the job that resumes from it, and what that
// means for the optimizer's state. Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// Parameters, by their names in saves, in the order of layers.
struct FreezeChange {
  std::vector<std::string> begins;  ///< they learn now but were frozen: the save has no moments
  std::vector<std::string> stops;   ///< they are frozen now but learnt: their moments are dropped

  /// True if `moment` ("3.weight#exp_avg") belongs to a parameter that begins to learn.
  bool Begins(std::string_view moment) const;
  /// True if it belongs to a parameter that stops learning.
  bool Stops(std::string_view moment) const;
  /// Messages for the user, one for each list that is not empty.
  std::vector<std::string> Notes() const;
};

/// The parameter of a moment: "3.weight" for "3.weight#exp_avg"; "" if the name is not that of a
/// moment.
std::string_view ParameterOf(std::string_view moment);

/// Finds the parameters whose `freeze` has changed. `saved_job`: TrainingState::job. Layers that it
/// does not describe count as unchanged.
FreezeChange ChangeOfFreeze(const Value& saved_job, const std::vector<LayerSpec>& layers);

/// The value of TrainingState::began for the training that resumes from `saved`.
BeganSteps BeganWith(const TrainingState& saved, const FreezeChange& change);

}  // namespace strata
