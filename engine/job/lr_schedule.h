// Learning-rate schedules: the factor of the learning rate at every step.
#pragma once

#include <cstdint>

#include "engine/job/job.h"
#include "engine/layers/script.h"

namespace strata {

/// The factor by which the lr of every group is multiplied at `step` (counted from 0).
/// `total_steps` is the length of the training, for schedules without `steps`. Steps beyond the
/// length keep the last factor. `script` is only needed for a function. Throws ConfigError if a
/// function does not return a finite number, and if a schedule needs a length and there is none.
///
/// While step < warmup the factor is (step + 1)/(warmup + 1). Later, with t = step - warmup and the
/// length T, it is
///   constant, plateau  1
///   linear             1 + (final - 1) t/T
///   cosine             final + (1 - final) (1 + cos(pi t/T))/2
///   polynomial         (1 - t/T)^power
///   step               gamma^floor(t/every)
///   multi_step         gamma^(number of milestones up to t)
///   exponential        gamma^t
///   cosine_restarts    cosine over cycles of T_0, T_0 T_mult, T_0 T_mult^2 ... steps
///   one_cycle          1/div_factor up to 1, then down to 1/(div_factor final_div_factor)
///   chain              the product of its schedules
///   sequence           its schedules, each from its milestone on with its own t; a schedule
///   without
///                      steps has the length up to the next milestone
/// like PyTorch's LinearLR, CosineAnnealingLR, PolynomialLR, StepLR, MultiStepLR, ExponentialLR,
/// CosineAnnealingWarmRestarts, OneCycleLR, ChainedScheduler and SequentialLR. The factor of a
/// plateau depends on evaluations; Plateau (monitors.h) computes it.
double LrFactor(const LrScheduleSpec& spec, int64_t step, int64_t total_steps, Script* script);

}  // namespace strata
