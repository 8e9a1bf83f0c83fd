#include "engine/spec/steps/monitors.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/spec/job/job_fields.h"

namespace strata {
namespace {

/// A best that is not there yet is left out: no number stands for it in JSON.
Value WithBest(Value state, const std::optional<double>& best) {
  if (best) state.Set("best", *best);
  return state;
}

std::optional<double> BestOf(const Value& state) {
  const Value* best = state.Find("best");
  return best ? std::optional(best->as_double()) : std::nullopt;
}

bool PlateauLarger(const Job& job) {
  const Value& mode = job.lr_schedule.options["mode"];
  return mode.is_null() ? LargerIsBetter(job.lr_schedule.options["monitor"].as_string())
                        : mode.as_string() == "max";
}

}  // namespace

bool LargerIsBetter(const std::string& monitor) {
  const auto& types = MetricTypes();
  const auto metric = std::ranges::find_if(
      types, [&](const auto& type) { return monitor == "test." + type.first; });
  return metric != types.end() && metric->second;
}

bool Best::Take(const MonitorSpec& spec, double value) {
  const double sign = spec.larger_is_better ? -1 : 1;
  const bool is_better =
      std::isfinite(value) && (!best_ || sign * value < sign * *best_ - spec.min_delta);
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
      plateau_monitor_(
          job.lr_schedule.type == "plateau" ? job.lr_schedule.options["monitor"].as_string() : ""),
      every_(job.eval.every) {
  if (!plateau_monitor_.empty()) plateau_.emplace(job.lr_schedule.options, PlateauLarger(job));
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
    verdict.is_best = best_.Take(best_spec_, number(best_spec_.monitor));
  }
  if (plateau_) plateau_->Take(number(plateau_monitor_));
  return verdict;
}

Value Monitors::state() const {
  Value state;
  if (!stop_spec_.monitor.empty()) state.Set("stop", stop_.state());
  if (!best_spec_.monitor.empty()) state.Set("best", best_.state());
  if (plateau_) state.Set("plateau", plateau_->state());
  return state.is_null() && every_ == 0 ? state : state.Set("step", last_);
}

void Monitors::set_state(const Value& state) {
  if (state.Has("stop")) stop_.set_state(state["stop"]);
  if (state.Has("best")) best_.set_state(state["best"]);
  if (plateau_ && state.Has("plateau")) plateau_->set_state(state["plateau"]);
  last_ = state["step"].as_int();
}

bool Monitors::owes(int64_t step) const { return step > last_ && every_ > 0 && step % every_ == 0; }

std::string Monitors::WhyStopped(int64_t step) const {
  const bool has_stopped =
      !stop_spec_.monitor.empty() && step == last_ && stop_.worse() > stop_spec_.patience;
  if (!has_stopped) return "";
  std::string best = stop_.value() ? Str(" than ", *stop_.value()) : "";
  if (stop_spec_.min_delta > 0) best += Str(", by more than ", stop_spec_.min_delta, ",");
  return Str("stopped after step ", step, ": ", stop_spec_.monitor, " got no better", best, " in ",
             Plural(stop_.worse(), "evaluation"), " (stop)");
}

}  // namespace strata
