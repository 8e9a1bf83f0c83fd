// LossScale: what the loss of a training in float16 is multiplied by, step by step. The rule is
// that of torch.amp.GradScaler, with DeepSpeed's hysteresis. Torch-free.
#pragma once

#include <cstdint>

#include "engine/base/value.h"
#include "engine/job/precision.h"

namespace strata {

/// The scale of one training, on every rank alike.
class LossScale {
 public:
  /// It grows no higher: gradients that are 0 never overflow, and losses are float32.
  static constexpr double kMost = 0x1p100;

  explicit LossScale(const LossScaleSpec& spec)
      : spec_(spec), scale_(spec.initial), left_(spec.hysteresis) {}

  double value() const { return scale_; }
  /// Whether an overflow can still be met with a smaller scale; otherwise the gradients are not
  /// finite whatever the scale.
  bool can_go_back() const { return spec_.dynamic && scale_ > spec_.least; }
  /// What comes of a step whose gradients were finite, or were not.
  void Update(bool is_finite);

  /// What a save holds: the scale, the good steps since the last change, the overflows that are
  /// left.
  Value state() const;
  /// `state`: what state() gave. A scale that is not dynamic stays as it is. Throws ConfigError
  /// where a member is missing.
  void set_state(const Value& state);

 private:
  const LossScaleSpec spec_;
  double scale_;
  int64_t good_ = 0;
  int64_t left_;
};

}  // namespace strata
