// LossScale: the factor by which the loss of a training in float16 is multiplied at each step. The
// rule is that of torch.amp.GradScaler, with DeepSpeed's hysteresis. Torch-free.
#pragma once

#include <cstdint>

#include "engine/base/value.h"
#include "engine/job/precision.h"

namespace strata {

/// The loss scale of one training. It is the same on every rank, since all ranks see the same
/// overflows.
class LossScale {
 public:
  /// The scale never grows beyond this. If all gradients are 0 they never overflow, and the scale
  /// would otherwise grow until the loss, a float32, is infinite.
  static constexpr double kMost = 0x1p100;

  explicit LossScale(const LossScaleSpec& spec)
      : spec_(spec), scale_(spec.initial), left_(spec.hysteresis) {}

  double value() const { return scale_; }
  /// True if the scale can still be lowered after an overflow. Otherwise gradients that are not
  /// finite cannot be repaired by another scale.
  bool can_go_back() const { return spec_.dynamic && scale_ > spec_.least; }
  /// Adjusts the scale after a step; `is_finite` says whether the step's gradients were finite.
  void Update(bool is_finite);

  /// The state that a save holds: the scale, the number of good steps since the last change, and
  /// the number of overflows left until the scale goes down.
  Value state() const;
  /// Restores a result of state(). A scale that is not dynamic stays as it is. Throws ConfigError
  /// if a member is missing or invalid.
  void set_state(const Value& state);

 private:
  const LossScaleSpec spec_;
  double scale_;
  int64_t good_ = 0;
  int64_t left_;
};

}  // namespace strata
