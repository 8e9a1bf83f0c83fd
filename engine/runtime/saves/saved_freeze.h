// What becomes of the optimizer's state where `freeze` is another one than in the save that a
// training goes on from. Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// Parameters by the names that saves have, in the order of layers.
struct FreezeChange {
  std::vector<std::string> begins;  ///< they learn now and were frozen: the save has no moments
  std::vector<std::string> stops;   ///< they are frozen now and learnt: their moments are dropped

  /// Whether the moment, "3.weight#exp_avg", is of a parameter that begins to learn.
  bool Begins(std::string_view moment) const;
  /// The same of one that learns no longer.
  bool Stops(std::string_view moment) const;
  /// Lines for people, one for each list that is not empty.
  std::vector<std::string> Notes() const;
};

/// "3.weight" of "3.weight#exp_avg"; "" of what is no moment.
std::string_view ParameterOf(std::string_view moment);

/// `saved_job`: TrainingState::job. A layer of which it says nothing counts as one that has not
/// changed.
FreezeChange ChangeOfFreeze(const Value& saved_job, const std::vector<LayerSpec>& layers);

/// TrainingState::began of the training that goes on from `saved`.
BeganSteps BeganWith(const TrainingState& saved, const FreezeChange& change);

}  // namespace strata
