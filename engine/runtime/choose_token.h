// ChooseToken(): samples the token that follows a text from the scores that a model gives.
// Torch-free.
#pragma once

#include <cstdint>
#include <span>

#include "engine/runtime/engine.h"

namespace strata {

/// Chooses the next token from the scores of all tokens. With temperature 0 it is the token with
/// the highest score; of several, the one with the lowest number. Otherwise the scores are divided
/// by the temperature; the `top_k` likeliest tokens get probabilities (softmax); of these the
/// likeliest are kept until their probabilities add up to `top_p`; `draw`, in [0, 1), then selects
/// one by its probability. Temperature, top_k and top_p apply in the order of the samplers of
/// Hugging Face transformers. Throws ConfigError if the highest score is not finite.
int32_t ChooseToken(std::span<const float> scores, const TextRequest& request, double draw);

/// A random number in [0, 1) for position `place` of prompt `prompt`. It depends on these arguments
/// only, so that texts are the same for every plan and whatever other prompts there are.
double DrawOf(int64_t seed, int64_t prompt, int64_t place);

}  // namespace strata
