// Stragglers: finds ranks that are slower than the others, from the seconds that each rank computes
// per step. A pure function of these numbers, without a clock. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace strata {

struct Straggler {
  int rank = 0;
  /// Its time, divided by the time it would take at the speed of the others.
  double factor = 1;
  bool operator==(const Straggler&) const = default;
};

/// A rank is compared with the ranks that do the same work. It is also compared with its own first
/// steps, relative to how the other ranks have changed since theirs, so that what slows all of them
/// down is not blamed on one. The larger factor counts. Within the last 10 steps, the rank's fast
/// steps (lower quartile) are compared with the others' slow ones (upper quartile), so that neither
/// single slow steps nor a busy machine cause a report; the reported factor compares medians.
class Stragglers {
 public:
  static constexpr size_t kWindow = 10;          ///< number of steps that are compared
  static constexpr double kSlow = 1.5;           ///< factor from which a rank is reported
  static constexpr double kLeastSeconds = 1e-3;  ///< ranks with shorter steps are not reported

  /// `work`: for each rank a number, equal for ranks that do the same work (stage and part of the
  /// model axis).
  explicit Stragglers(std::vector<int> work) : work_(std::move(work)) {}

  /// Call it after each step with the seconds that each rank computed. Returns the ranks that have
  /// become slow with this step, or whose factor has grown by half since they were reported. A rank
  /// that is no longer slow may be reported again later.
  std::vector<Straggler> Add(const std::vector<double>& busy);

  /// Forgets all steps, because layers have moved and the ranks do other work from now on.
  void Forget();

  /// The latest factor of each rank; 1 while unknown.
  const std::vector<double>& factors() const { return factors_; }

 private:
  /// For each rank: the quantile `share` of its seconds in the last steps.
  std::vector<double> OfSteps(double share) const;
  /// The factor of a rank that takes `seconds` while the other ranks take `others`.
  double Factor(size_t rank, double seconds, const std::vector<double>& others) const;

  const std::vector<int> work_;
  std::deque<std::vector<double>> steps_;  // the last ones
  int64_t count_ = 0;
  std::vector<double> first_;  // medians of the first window
  std::vector<double> factors_;
  std::vector<double> told_;  // by rank: the factor last reported; 0 if it is not slow
};

}  // namespace strata
