// Stragglers: which ranks are slower than the others, from the seconds that each computes. Decides
// from numbers alone, without a clock. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace strata {

struct Straggler {
  int rank = 0;
  double factor = 1;  ///< so many times what it would take as fast as the others
  bool operator==(const Straggler&) const = default;
};

/// A rank's pace is its seconds against those of ranks that do the same work; without such ranks,
/// against its own first steps, and that against the others' paces: what slows all of them down is
/// no straggler's. Of the last 10 steps its faster ones decide against the others' slower ones, so
/// that neither single slow steps nor a busy machine names anybody; its factor is that of medians.
class Stragglers {
 public:
  static constexpr size_t kWindow = 10;          ///< steps that are looked at
  static constexpr double kSlow = 1.5;           ///< a factor from which a rank is named
  static constexpr double kLeastSeconds = 1e-3;  ///< shorter steps are noise

  /// `work`: of each rank, a number that is equal for ranks that do the same work (stage and part).
  explicit Stragglers(std::vector<int> work) : work_(std::move(work)) {}

  /// After each step: the seconds that each rank computed. Gives those who have become slow with
  /// this step, or half as slow again as they were when they were named. Whoever was fast for a
  /// whole window may be named again.
  std::vector<Straggler> Add(const std::vector<double>& busy);

  /// Layers have moved: ranks do other work from now on, and begin anew.
  void Forget();

  /// The newest factor of each rank; 1 while it is not known.
  const std::vector<double>& factors() const { return factors_; }

 private:
  /// Of each rank's last steps: the seconds below which that share of them lies.
  std::vector<double> OfSteps(double share) const;
  /// Of a rank that takes so many seconds, where the others take those.
  double Factor(size_t rank, double seconds, const std::vector<double>& others) const;

  const std::vector<int> work_;
  std::deque<std::vector<double>> steps_;  // the last ones
  int64_t count_ = 0;
  std::vector<double> first_;  // medians of the first window
  std::vector<double> factors_;
  std::vector<double> told_;  // of each rank: the factor at which it was named; 0 = it is not
};

}  // namespace strata
