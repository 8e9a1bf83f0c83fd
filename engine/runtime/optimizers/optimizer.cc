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
    for (std::string& name : type.moments(options)) AddMoment(std::move(name));
    updated_ = {state_.buffer.values, state_.buffer.gradients, {}};
    for (const Moment& moment : state_.moments) updated_.moments.push_back(moment.values);
    if (ema_ > 0) AddMoment("ema");
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
    if (ema_ > 0) average().lerp_(state_.buffer.values, steps_ == 1 ? 1 : 1 - ema_);
  }

  void SwapAverages() {
    constexpr int64_t kAtOnce = 1 << 22;  // so that little memory is needed beside
    const at::Tensor& all = state_.buffer.values;
    if (ema_ == 0 || (steps_ == 0 && !has_averages_)) return;
    for (int64_t i = 0; i < all.numel(); i += kAtOnce) {
      const int64_t count = std::min(kAtOnce, all.numel() - i);
      const at::Tensor values = all.narrow(0, i, count), averages = average().narrow(0, i, count);
      const at::Tensor kept = values.clone();
      values.copy_(averages);
      averages.copy_(kept);
    }
  }

  void BeginAverages() {
    if (ema_ > 0) average().copy_(state_.buffer.values);
    has_averages_ = true;
  }

  const OptimizerState& state() const { return state_; }
  void set_steps_done(int64_t steps) { steps_ = steps; }

 private:
  void AddMoment(std::string name) {
    state_.moments.push_back({std::move(name), at::zeros_like(state_.buffer.values)});
  }
  const at::Tensor& average() const { return state_.moments.back().values; }

  const double ema_;
  double lr_ = 0;
  Rule rule_;
  OptimizerState state_;
  Updated updated_;                          // without the averages
  std::vector<PlacedParameter> parameters_;  // for rules that see whole ones
  int64_t steps_ = 0;
  bool has_averages_ = false;  // before the first step
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
