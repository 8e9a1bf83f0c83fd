// Counts restarts, and recognises those that make no progress.
#include "launcher/process/restarts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "engine/base/text.h"

namespace strata::launcher {
namespace {

/// The number of runs in a row that may make no progress. After a single one, the second may have
/// failed for another reason.
constexpr int kFruitless = 2;
constexpr double kLongestPause = 60;

struct Unit {
  std::string_view name;
  double seconds;
};
constexpr Unit kUnits[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};

}  // namespace

bool Restarts::Again(const Outcome& outcome, int64_t steps, double now) {
  outcome_ = outcome;
  if (most_ == 0 || outcome.exit_code == 0) return false;
  const bool is_away = first_ && outcome.is_early;
  away_ = is_away ? away_ + 1 : 0;
  const bool came_further = !first_ || steps > furthest_;
  furthest_ = std::max(furthest_, steps);
  if (came_further) {
    first_ = outcome;
    fruitless_ = 0;
  } else if (!is_away) {
    ++fruitless_;
  }
  if (!outcome.may_pass && !is_away) return false;
  while (!times_.empty() && now - times_.front() > window_) times_.pop_front();
  const bool is_used_up = static_cast<int>(times_.size()) >= most_;
  if (!is_used_up && fruitless_ < kFruitless) {
    times_.push_back(now);
    return true;
  }
  if (fruitless_ > 0 || is_away) outcome_ = *first_;
  const std::string steps_done = Str("step ", furthest_);
  outcome_.cause += fruitless_ >= kFruitless
                        ? Str("\nthe job was started again ", Plural(fruitless_, "time"),
                              " and did not come further than ", steps_done)
                        : Str("\nthe job was started again ", Plural(times_.size(), "time"),
                              " already (--max_restarts)");
  return false;
}

double Restarts::Pause() const {
  return away_ == 0 ? 0 : std::min(kLongestPause, std::ldexp(1, away_ - 1));
}

std::string Restarts::Count() const { return Str("restart ", times_.size(), " of ", most_); }

std::optional<double> ParseDuration(const std::string& text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (unit.name == std::string_view(end, last)) return number * unit.seconds;
  }
  return std::nullopt;
}

}  // namespace strata::launcher
