#include "engine/job/monitors.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/job/job_fields.h"

namespace strata {
namespace {

/// Adds the best number to a state, unless there is none yet: JSON has no number for that.
Value WithBest(Value state, const std::optional<double>& best) {
  if (best) state.Set("best", *best);
  return state;
}

std::optional<double> BestOf(const Value& state) {
  const Value* best = state.Find("best");
  return best ? std::optional(best->as_double()) : std::nullopt;
}

MonitorSpec PlateauSpec(const Job& job) {
  if (job.lr_schedule.type != "plateau") return {};
  const Value& options = job.lr_schedule.options;
  const Value& mode = options["mode"];
  MonitorSpec spec = {.monitor = options["monitor"].as_string()};
  spec.larger_is_better = mode.is_null() ? LargerIsBetter(spec.monitor) : mode.as_string() == "max";
  return spec;
}

constexpr const char* kMonitor = "monitor";
constexpr const char* kLarger = "larger_is_better";

/// Adds to a state the number and the direction that it belongs to.
Value Named(Value state, const MonitorSpec& spec) {
  return state.Set(kMonitor, spec.monitor).Set(kLarger, spec.larger_is_better);
}

/// True if a state belongs to this number and direction. States of older versions do not say so and
/// are accepted.
bool IsOf(const Value& state, const MonitorSpec& spec) {
  return !state.Has(kMonitor) ||
         (state[kMonitor] == Value(spec.monitor) && state[kLarger] == Value(spec.larger_is_better));
}

/// The number and its direction, for messages: "test.loss, less is better".
std::string NumberText(const std::string& monitor, bool larger_is_better) {
  return Str(monitor, larger_is_better ? ", more" : ", less", " is better");
}

}  // namespace

bool LargerIsBetter(const std::string& monitor) {
  const auto& types = MetricTypes();
  const auto metric = std::ranges::find_if(
      types, [&](const auto& type) { return monitor == "test." + type.first; });
  return metric != types.end() && metric->second;
}

bool Best::IsBetter(const MonitorSpec& spec, double value) const {
  const double sign = spec.larger_is_better ? -1 : 1;
  return std::isfinite(value) && (!best_ || sign * value < sign * *best_ - spec.min_delta);
}

bool Best::Take(const MonitorSpec& spec, double value) {
  const bool is_better = IsBetter(spec, value);
  if (is_better) best_ = value;
  worse_ = is_better ? 0 : worse_ + 1;
  return is_better;
}

Value Best::state() const { return WithBest(Value::MakeMap({{"worse", worse_}}), best_); }

void Best::set_state(const Value& state) {
  best_ = BestOf(state);
  worse_ = state["worse"].as_int();
}

Plateau::Plateau(const Value& options, bool larger_is_better)
    : options_(options), larger_is_better_(larger_is_better) {}

bool Plateau::IsBetter(double value) const {
  if (!best_) return std::isfinite(value);
  const double threshold = options_["threshold"].as_double();
  const double step = options_["threshold_mode"] == Value("rel") ? *best_ * threshold : threshold;
  return larger_is_better_ ? value > *best_ + step : value < *best_ - step;
}

void Plateau::Take(double value) {
  const bool is_better = IsBetter(value);
  if (is_better) best_ = value;
  bad_ = is_better ? 0 : bad_ + 1;
  if (cooldown_ > 0) --cooldown_, bad_ = 0;
  if (bad_ <= options_["patience"].as_int()) return;
  factor_ = std::max(factor_ * options_["factor"].as_double(), options_["min_factor"].as_double());
  cooldown_ = options_["cooldown"].as_int();
  bad_ = 0;
}

Value Plateau::state() const {
  return WithBest(Value::MakeMap({{"bad", bad_}, {"cooldown", cooldown_}, {"factor", factor_}}),
                  best_);
}

void Plateau::set_state(const Value& state) {
  best_ = BestOf(state);
  bad_ = state["bad"].as_int();
  cooldown_ = state["cooldown"].as_int();
  factor_ = state["factor"].as_double();
}

Monitors::Monitors(const Job& job)
    : stop_spec_(job.stop),
      best_spec_(job.save.best),
      plateau_spec_(PlateauSpec(job)),
      every_(job.eval.every) {
  if (plateau_spec_.monitor.empty()) return;
  plateau_.emplace(job.lr_schedule.options, plateau_spec_.larger_is_better);
}

Monitors::Verdict Monitors::Take(int64_t step, const Value& numbers) {
  Verdict verdict;
  last_ = step;
  const auto number = [&](const std::string& name) {
    return numbers.Has(name) ? numbers[name].as_double() : std::nan("");
  };
  if (!stop_spec_.monitor.empty()) {
    stop_.Take(stop_spec_, number(stop_spec_.monitor));
    verdict.why_stopped = WhyStopped(step);
  }
  if (!best_spec_.monitor.empty()) {
    if (found_ && step > found_->first) {
      if (best_.IsBetter(best_spec_, found_->second)) best_.Take(best_spec_, found_->second);
      found_.reset();
    }
    best_before_ = best_;
    verdict.is_best = best_.Take(best_spec_, number(best_spec_.monitor));
  }
  if (plateau_) plateau_->Take(number(plateau_spec_.monitor));
  return verdict;
}

Value Monitors::state() const {
  Value state;
  if (!stop_spec_.monitor.empty()) state.Set("stop", Named(stop_.state(), stop_spec_));
  if (!best_spec_.monitor.empty()) state.Set("best", Named(best_.state(), best_spec_));
  if (plateau_) state.Set("plateau", Named(plateau_->state(), plateau_spec_));
  return state.is_null() && every_ == 0 ? state : state.Set("step", last_);
}

std::vector<std::string> Monitors::set_state(const Value& state) {
  std::vector<std::string> notes;
  const auto is_of = [&](const char* what, const Value& seen, const MonitorSpec& spec) {
    if (IsOf(seen, spec)) return true;
    notes.push_back(Str(what, " looks at ", NumberText(spec.monitor, spec.larger_is_better),
                        ", when it was saved at ",
                        NumberText(seen[kMonitor].as_string(), seen[kLarger].as_bool()),
                        ": what it has seen does not count"));
    return false;
  };
  const auto take = [&](const char* what, const Value& seen, const MonitorSpec& spec, Best& best) {
    if (spec.monitor.empty() || seen.is_null()) return;
    if (is_of(what, seen, spec)) best.set_state(seen);
  };
  take("stop", state["stop"], stop_spec_, stop_);
  take("save.best", state["best"], best_spec_, best_);
  if (const Value& seen = state["plateau"]; plateau_ && !seen.is_null()) {
    is_of("the plateau", seen, plateau_spec_) ? plateau_->set_state(seen)
                                              : plateau_->set_factor(seen["factor"].as_double());
  }
  last_ = state["step"].as_int();
  return notes;
}

void Monitors::FindBest(int64_t step, const Value& state) {
  const Value& best = state["best"];
  const std::optional<double> value = IsOf(best, best_spec_) ? BestOf(best) : std::nullopt;
  if (value) found_ = {step, *value};
}

bool Monitors::owes(int64_t step, int64_t steps_per_epoch) const {
  const int64_t every = EverySteps(every_, steps_per_epoch);
  return step > last_ && every > 0 && step % every == 0;
}

std::string Monitors::WhyStopped(int64_t step) const {
  const int64_t most = std::max<int64_t>(stop_spec_.patience, 1);
  const bool has_stopped = !stop_spec_.monitor.empty() && step == last_ && stop_.worse() >= most;
  if (!has_stopped) return "";
  std::string best = stop_.value() ? Str(" than ", *stop_.value()) : "";
  if (stop_spec_.min_delta > 0) best += Str(", by more than ", stop_spec_.min_delta, ",");
  return Str("stopped after step ", step, ": ", stop_spec_.monitor, " got no better", best, " in ",
             Plural(stop_.worse(), "evaluation"), " (stop)");
}

}  // namespace strata
