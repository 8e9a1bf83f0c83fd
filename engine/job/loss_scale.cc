// After an overflow the scale is multiplied by `backoff`, unless the hysteresis allows further
// overflows. After `interval` good steps in a row it is multiplied by `growth`, and the hysteresis
// starts anew.
#include "engine/job/loss_scale.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

void LossScale::Update(bool is_finite) {
  if (!spec_.dynamic) return;
  if (!is_finite) {
    good_ = 0;
    if (left_ > 1) {
      --left_;
    } else {
      scale_ = std::max(scale_ * spec_.backoff, spec_.least);
    }
  } else if (++good_ == spec_.interval) {
    good_ = 0;
    left_ = spec_.hysteresis;
    if (scale_ * spec_.growth <= kMost) scale_ *= spec_.growth;
  }
}

Value LossScale::state() const {
  return Value::MakeMap({{"scale", scale_}, {"good_steps", good_}, {"hysteresis", left_}});
}

void LossScale::set_state(const Value& state) {
  if (!spec_.dynamic) return;
  const Value *scale = state.Find("scale"), *good = state.Find("good_steps"),
              *left = state.Find("hysteresis");
  if (!scale || !scale->is_number() || !(scale->as_double() > 0) || !good || !good->is_int() ||
      !left || !left->is_int()) {
    throw ConfigError(Str("the loss scale of the save is broken: ", state.ToJson()));
  }
  scale_ = scale->as_double();
  good_ = good->as_int();
  left_ = left->as_int();
}

}  // namespace strata
