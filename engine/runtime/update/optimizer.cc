// Each flat buffer has an Update: its state, and runs of neighbouring parameters that began to
// learn at the same step. Usually there is one run. A step applies the rule to each run and then
// updates the averages (ema).
#include "engine/runtime/update/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/job/parameter_groups.h"

namespace strata {
namespace {

/// Neighbouring parameters of a flat buffer that began to learn at the same step. Like the bounds
/// of shares (ZeRO-1), those of runs do not change the bits of the result.
struct Run {
  int64_t began = 0;  // steps that were done before
  int64_t begin = 0;  // first element in the buffer
  Rule rule;          // a rule of its own, because some rules count steps
  Updated updated;    // without the averages
  std::vector<PlacedParameter> parameters = {};  // for rules that see whole parameters
};

/// One flat buffer with the rule of its group and its state.
class Update {
 public:
  Update(const OptimizerSpec& spec, FlatBuffer buffer, std::span<const PlacedParameter> parameters)
      : ema_(spec.ema),
        type_(FindOptimizerType(GroupType(spec, buffer.group))),
        options_(GroupOptions(spec, buffer.group)) {
    lr_ = options_["lr"].as_double();
    state_.buffer = std::move(buffer);
    const at::ScalarType own = state_.buffer.values.scalar_type();
    is_wide_ = at::isReducedFloatingType(own);
    for (std::string& name : type_.moments(options_)) AddMoment(std::move(name), own);
    moments_ = state_.moments.size();
    if (ema_ > 0) AddMoment("ema", is_wide_ ? at::kFloat : own);
    for (const PlacedParameter& parameter : parameters) {
      if (!state_.buffer.values.is_alias_of(parameter.value) || parameter.buffer < 0) continue;
      parameters_.push_back(parameter);
      parameters_.back().value = parameter.value.variable_data();  // no leaf of autograd
      if (type_.name != "adafactor") continue;
      for (Factor& factor : AdafactorFactors(parameter))
        state_.factors.push_back(std::move(factor));
    }
    Divide({});
  }

  void Step(double lr_factor, double divisor) {
    // Rules divide by a float. The divisor is larger if huge gradients are clipped; then a part of
    // the division is done here.
    constexpr double kMost = std::numeric_limits<float>::max();
    for (; divisor > kMost && std::isfinite(divisor); divisor *= 0x1p-64) {
      state_.buffer.gradients.mul_(0x1p-64);
    }
    ++steps_;
    bool wrote_copies = true;
    for (Run& run : runs_) {
      bool wrote_copy = false;
      run.updated.parameters = run.parameters;
      run.updated.factors = &state_.factors;
      run.updated.wrote_copy = &wrote_copy;
      run.rule(run.updated,
               {.step = steps_ - run.began, .lr = lr_ * lr_factor, .divisor = divisor});
      wrote_copies &= wrote_copy;
    }
    if (state_.buffer.copy) state_.buffer.copy->is_fresh = wrote_copies;
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
  void set_steps_done(int64_t steps, const std::map<std::string, int64_t>& began) {
    steps_ = steps;
    Divide(began);
  }

 private:
  /// The position of a parameter's first element in the buffer; negative if a share begins within
  /// it.
  int64_t PlaceOf(const PlacedParameter& parameter) const {
    return parameter.value.storage_offset() - state_.buffer.values.storage_offset();
  }

  /// Divides the buffer into runs.
  void Divide(const std::map<std::string, int64_t>& began) {
    runs_.clear();
    runs_.push_back({.rule = MakeRule(type_.name, options_), .updated = {}});
    bool is_first = true;
    for (const PlacedParameter& parameter : parameters_) {
      const int64_t begin = PlaceOf(parameter), all = state_.buffer.values.numel();
      if (begin >= all || begin + parameter.value.numel() <= 0) continue;
      const auto found = began.find(parameter.path);
      const int64_t steps = found == began.end() ? 0 : found->second;
      if (std::exchange(is_first, false)) {
        runs_.back().began = steps;
      } else if (steps != runs_.back().began) {
        runs_.push_back({.began = steps,
                         .begin = begin,
                         .rule = MakeRule(type_.name, options_),
                         .updated = {}});
      }
      if (type_.sees == OptionTable::Sees::kElements) continue;
      runs_.back().parameters.push_back(parameter);
      runs_.back().parameters.back().offset = begin - runs_.back().begin;
    }
    for (size_t i = 0; i < runs_.size(); ++i) {
      const int64_t end = i + 1 < runs_.size() ? runs_[i + 1].begin : state_.buffer.values.numel();
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, runs_[i].begin, end - runs_[i].begin);
      };
      Updated& updated = runs_[i].updated;
      updated = {part(state_.buffer.values), part(state_.buffer.gradients), {}};
      for (size_t m = 0; m < moments_; ++m) {
        updated.moments.push_back(part(state_.moments[m].values));
      }
      if (state_.buffer.copy) updated.copy = part(state_.buffer.copy->values);
    }
  }

  void AddMoment(std::string name, at::ScalarType type) {
    const at::Tensor& values = state_.buffer.values;
    state_.moments.push_back(
        {std::move(name), at::zeros_like(values, values.options().dtype(type))});
  }
  const at::Tensor& average() const { return state_.moments.back().values; }

  /// Calls function(values, averages) on pieces of the buffer, to limit temporary memory.
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

  /// Exchanges 16-bit values with averages in float32. Rounding the averages would lose precision,
  /// so they stay, and the values are kept aside.
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
  const OptionTable& type_;
  const Value options_;
  double lr_ = 0;
  OptimizerState state_;
  size_t moments_ = 0;                       // number of moments in the state, without the averages
  std::vector<PlacedParameter> parameters_;  // those in the buffer, in order
  std::vector<Run> runs_;                    // in order; together they cover the buffer
  int64_t steps_ = 0;
  bool has_averages_ = false;  // true if averages exist before the first step
  /// True if values are 16-bit. Their averages are float32, because a step moves them by less than
  /// 16 bits can represent.
  bool is_wide_ = false;
  // The values, while their rounded averages are in their place.
  at::Tensor kept_;
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
    ++done_.steps;
  }
  std::vector<OptimizerState> state() const override {
    std::vector<OptimizerState> states;
    for (const Update& update : updates_) states.push_back(update.state());
    return states;
  }
  void set_steps_done(int64_t steps, const std::map<std::string, int64_t>& began) override {
    for (Update& update : updates_) update.set_steps_done(steps, began);
    done_ = {steps, began};
  }
  StepsDone steps_done() const override { return done_; }
  void SwapAverages() override {
    for (Update& update : updates_) update.SwapAverages();
  }
  void BeginAverages() override {
    for (Update& update : updates_) update.BeginAverages();
  }

 private:
  std::vector<Update> updates_;
  StepsDone done_;
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
