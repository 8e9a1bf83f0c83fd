// Describes how this job differs from the job that a save was trained with.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata {

/// Compares two jobs as saves store them. Lists at most three differences with both values, and the
/// number of further ones: "clip: 0.5 against 0.25; seed: 1 against 2". Returns "" if there are
/// none. A function with the same digest at another line is no difference.
std::string DifferencesOf(const Value& saved, const Value& now);

/// The same for what determines the outputs of trained weights: types and arguments of layers, ema
/// and precision. Compares only keys that the save has.
std::string DifferencesOfOutputs(const Value& saved, const Value& now);

}  // namespace strata
