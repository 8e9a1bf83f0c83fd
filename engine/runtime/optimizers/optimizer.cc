#include "engine/runtime/optimizers/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/spec/job/training/parameter_groups.h"

namespace strata {
namespace {

/// One flat buffer with the rule of its group and what is kept for it.
class Update {
 public:
  Update(const OptimizerSpec& spec, FlatBuffer buffer, std::span<const PlacedParameter> parameters)
      : ema_(spec.ema) {
    const OptionTable& type = FindOptimizerType(GroupType(spec, buffer.group));
    const Value options = GroupOptions(spec, buffer.group);
    rule_ = MakeRule(type.name, options);
    lr_ = options["lr"].as_double();
    state_.buffer = std::move(buffer);
    const at::ScalarType own = state_.buffer.values.scalar_type();
    is_wide_ = at::isReducedFloatingType(own);
    for (std::string& name : type.moments(options)) AddMoment(std::move(name), own);
    updated_ = {state_.buffer.values, state_.buffer.gradients, {}};
    for (const Moment& moment : state_.moments) updated_.moments.push_back(moment.values);
    if (ema_ > 0) AddMoment("ema", is_wide_ ? at::kFloat : own);
    if (type.sees == OptionTable::Sees::kElements) return;
    for (const PlacedParameter& parameter : parameters) {
      if (!state_.buffer.values.is_alias_of(parameter.value) || parameter.buffer < 0) continue;
      parameters_.push_back(parameter);
      parameters_.back().value = parameter.value.variable_data();  // no leaf of autograd's
      if (type.name != "adafactor") continue;
      for (Factor& factor : AdafactorFactors(parameter))
        state_.factors.push_back(std::move(factor));
    }
  }

  void Step(double lr_factor, double divisor) {
    updated_.parameters = parameters_;
    updated_.factors = &state_.factors;
    // Rules divide by a float. Where gradients near a float's end are clipped, that is too small.
    constexpr double kMost = std::numeric_limits<float>::max();
    for (; divisor > kMost && std::isfinite(divisor); divisor *= 0x1p-64) {
      state_.buffer.gradients.mul_(0x1p-64);
    }
    rule_(updated_, {.step = ++steps_, .lr = lr_ * lr_factor, .divisor = divisor});
    if (ema_ > 0) Follow(steps_ == 1 ? 1 : 1 - ema_);
  }

  void SwapAverages() {
    if (ema_ == 0 || (steps_ == 0 && !has_averages_)) return;
    if (is_wide_) return SwapRounded();
    ForPieces([](const at::Tensor& values, const at::Tensor& averages) {
      const at::Tensor kept = values.clone();
      values.copy_(averages);
      averages.copy_(kept);
    });
  }

  void BeginAverages() {
    if (ema_ > 0) average().copy_(state_.buffer.values);
    has_averages_ = true;
  }

  const OptimizerState& state() const { return state_; }
  void set_steps_done(int64_t steps) { steps_ = steps; }

 private:
  void AddMoment(std::string name, at::ScalarType type) {
    const at::Tensor& values = state_.buffer.values;
    state_.moments.push_back(
        {std::move(name), at::zeros_like(values, values.options().dtype(type))});
  }
  const at::Tensor& average() const { return state_.moments.back().values; }

  /// Calls function(values, averages) so that little memory is needed beside.
  template <class Function>
  void ForPieces(const Function& function) const {
    constexpr int64_t kAtOnce = 1 << 22;
    const at::Tensor& all = state_.buffer.values;
    for (int64_t i = 0; i < all.numel(); i += kAtOnce) {
      const int64_t count = std::min(kAtOnce, all.numel() - i);
      function(all.narrow(0, i, count), average().narrow(0, i, count));
    }
  }

  void Follow(double weight) {
    if (!is_wide_) {
      average().lerp_(state_.buffer.values, weight);
      return;
    }
    ForPieces([weight](const at::Tensor& values, const at::Tensor& averages) {
      averages.lerp_(values.to(averages.scalar_type()), weight);
    });
  }

  /// Rounded averages would not come back: they stay, and the values wait beside.
  void SwapRounded() {
    const at::Tensor& values = state_.buffer.values;
    if (kept_.defined()) {
      values.copy_(std::exchange(kept_, {}));
      return;
    }
    kept_ = values.clone();
    values.copy_(average());
  }

  const double ema_;
  double lr_ = 0;
  Rule rule_;
  OptimizerState state_;
  Updated updated_;                          // without the averages
  std::vector<PlacedParameter> parameters_;  // for rules that see whole ones
  int64_t steps_ = 0;
  bool has_averages_ = false;  // before the first step
  /// The averages of 16-bit values are in float32: a step moves them by less than 16 bits tell.
  bool is_wide_ = false;
  at::Tensor kept_;  // the values, while their rounded averages are in their place
};

class FlatOptimizer : public Optimizer {
 public:
  FlatOptimizer(const OptimizerSpec& spec, std::vector<FlatBuffer> buffers,
                std::span<const PlacedParameter> parameters) {
    for (FlatBuffer& buffer : buffers) {
      updates_.emplace_back(spec, std::move(buffer), parameters);
    }
  }
  void Step(double lr_factor, double divisor) override {
    for (Update& update : updates_) update.Step(lr_factor, divisor);
  }
  std::vector<OptimizerState> state() const override {
    std::vector<OptimizerState> states;
    for (const Update& update : updates_) states.push_back(update.state());
    return states;
  }
  void set_steps_done(int64_t steps) override {
    for (Update& update : updates_) update.set_steps_done(steps);
  }
  void SwapAverages() override {
    for (Update& update : updates_) update.SwapAverages();
  }
  void BeginAverages() override {
    for (Update& update : updates_) update.BeginAverages();
  }

 private:
  std::vector<Update> updates_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, std::vector<FlatBuffer> buffers,
                                         std::span<const PlacedParameter> parameters) {
  return std::make_unique<FlatOptimizer>(spec, std::move(buffers), parameters);
}

double ClipFactor(double max_norm, double norm) {
  if (max_norm == 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace strata
