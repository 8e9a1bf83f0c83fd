// Keeps the seconds of the last kWindow steps. A rank's factor is the larger of two ratios: its
// seconds over the median of the ranks with the same work, and its slowdown since its first window
// over the median slowdown of the other ranks (at least 1). To report a rank, the lower quartile of
// its seconds is compared with the upper quartiles of the others; the factor that is reported
// compares medians. The cost per step is quadratic in the number of ranks.
#include "engine/runtime/watch/stragglers.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/median.h"

namespace strata {
namespace {

constexpr double kMedian = 0.5;  // a quantile: of two values it takes the lower

}  // namespace

std::vector<double> Stragglers::OfSteps(double share) const {
  std::vector<double> values;
  for (size_t rank = 0; rank < work_.size(); ++rank) {
    std::vector<double> seconds;
    for (const std::vector<double>& step : steps_) seconds.push_back(step[rank]);
    values.push_back(Quantile(std::move(seconds), share));
  }
  return values;
}

double Stragglers::Factor(size_t rank, double seconds, const std::vector<double>& others) const {
  std::vector<double> same;   // seconds of the others that do the same work
  std::vector<double> paces;  // of all others, against their first steps
  for (size_t other = 0; other < work_.size(); ++other) {
    if (other == rank) continue;
    if (work_[other] == work_[rank]) same.push_back(others[other]);
    if (first_[other] > 0) paces.push_back(others[other] / first_[other]);
  }
  double factor = 1;
  if (!same.empty()) factor = seconds / std::max(Quantile(same, kMedian), kLeastSeconds);
  if (!paces.empty() && first_[rank] > 0) {
    const double pace = seconds / first_[rank];
    factor = std::max(factor, pace / std::max(Quantile(paces, kMedian), 1.0));
  }
  return factor;
}

void Stragglers::Forget() {
  steps_.clear();
  first_.clear();
  factors_.clear();
  told_.clear();
  count_ = 0;
}

std::vector<Straggler> Stragglers::Add(const std::vector<double>& busy) {
  if (busy.size() != work_.size() || busy.size() < 2) return {};
  factors_.resize(busy.size(), 1);
  told_.resize(busy.size(), 0);
  if (count_++ == 0) return {};  // the first step warms up
  steps_.push_back(busy);
  if (steps_.size() > kWindow) steps_.pop_front();
  if (steps_.size() < kWindow) return {};
  const std::vector<double> now = OfSteps(kMedian);
  const std::vector<double> fast = OfSteps(0.25), slow = OfSteps(0.75);
  if (first_.empty()) first_ = now;
  std::vector<Straggler> found;
  for (size_t rank = 0; rank < busy.size(); ++rank) {
    factors_[rank] = Factor(rank, now[rank], now);
    const bool is_slow = Factor(rank, fast[rank], slow) >= kSlow && now[rank] >= kLeastSeconds;
    if (!is_slow) {
      told_[rank] = 0;
    } else if (factors_[rank] >= kSlow * told_[rank]) {
      told_[rank] = factors_[rank];
      found.push_back({static_cast<int>(rank), factors_[rank]});
    }
  }
  return found;
}

}  // namespace strata
