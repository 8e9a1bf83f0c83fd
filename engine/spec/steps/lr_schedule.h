// Learning-rate schedules: the factor of the learning rate at every step.
#pragma once

#include <cstdint>

#include "engine/spec/job/job.h"
#include "engine/spec/layers/script.h"

namespace strata {

/// The factor by which the lr of every group is multiplied at `step` (counted from 0).
/// `total_steps` is the length of the training, for schedules without `steps`. Steps beyond it keep
/// the last factor. `script` is only needed for a function. Throws ConfigError when a function
/// gives no finite number, and when a schedule needs a length and there is none.
///
/// While step < warmup the factor is (step + 1)/(warmup + 1). Later, with t = step - warmup and the
/// length T, it is
///   constant  1
///   linear    1 + (final - 1) t/T
///   cosine    final + (1 - final) (1 + cos(pi t/T))/2
///   step      gamma^floor(t/every)
/// as PyTorch's LinearLR, CosineAnnealingLR and StepLR.
double LrFactor(const LrScheduleSpec& spec, int64_t step, int64_t total_steps, Script* script);

}  // namespace strata
