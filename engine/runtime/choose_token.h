// ChooseToken(): the token that follows a text, by the scores that a model gives. Torch-free.
#pragma once

#include <cstdint>
#include <span>

#include "engine/runtime/engine.h"

namespace strata {

/// With temperature 0 the token with the highest score, of equals the first. Else the scores over
/// the temperature become probabilities (softmax) of the `top_k` likeliest tokens; of these stay
/// the likeliest ones that are needed to reach `top_p`; and `draw`, from 0 to 1 without 1, chooses
/// among them by their probabilities: the order of transformers' samplers. Throws ConfigError where
/// the highest score is not finite.
int32_t ChooseToken(std::span<const float> scores, const TextRequest& request, double draw);

/// The number for the token at place `place` of the text of prompt `prompt`: the same for every
/// plan, and whatever other prompts there are.
double DrawOf(int64_t seed, int64_t prompt, int64_t place);

}  // namespace strata
