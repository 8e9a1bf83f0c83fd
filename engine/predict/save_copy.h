// What a save copies so that the training goes on beside it.
#pragma once

#include <cstdint>

#include "engine/predict/forecast.h"

namespace strata {

/// Bytes of the largest copy that a rank takes: parameters, buffers and optimizer state, without
/// the copies in half precision, which no save has.
int64_t SaveCopyBytes(const Plan& plan, const StepForecast& step);

}  // namespace strata
