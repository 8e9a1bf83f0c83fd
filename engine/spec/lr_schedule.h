// Learning-rate schedules: the factor of every step.
#pragma once

#include <cstdint>

#include "engine/spec/job.h"
#include "engine/spec/script.h"

namespace strata {

/// The factor by which every group's lr is multiplied at `step` (counted from 0). `total_steps` is
/// the length of the training (for schedules whose `steps` was left out); steps beyond it keep the
/// last factor. `script` is needed for a function only. Throws ConfigError when a function gives no
/// finite number, or a schedule needs a length and there is none.
///
/// With t = step - warmup: constant 1; linear 1 + (final - 1) t/T; cosine final + (1 - final) (1 +
/// cos(pi t/T))/2; step gamma^floor(t/every). While step < warmup: (step + 1)/(warmup + 1). They
/// equal PyTorch's LinearLR, CosineAnnealingLR and StepLR.
double LrFactor(const LrScheduleSpec& spec, int64_t step, int64_t total_steps, Script* script);

}  // namespace strata
