// How this job differs from the one that a save was trained with.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata {

/// Where two jobs, as saves have them, differ: at most three places with both values, and how many
/// more: "clip: 0.5 against 0.25; seed: 1 against 2". "" where they do not. A function that is the
/// same at another place is no difference.
std::string DifferencesOf(const Value& saved, const Value& now);

/// DifferencesOf() what decides the outputs of trained weights: types and arguments of layers, ema
/// and precision; those that the save tells of.
std::string DifferencesOfOutputs(const Value& saved, const Value& now);

}  // namespace strata
