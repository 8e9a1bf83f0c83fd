// Climb: the search over cuts. It moves the bounds of a cut while that makes it better.
//
// What goes in: a cut, and a function that tries another one and takes it if it is better. A
// neighbour of a cut has one bound a layer to either side. Where no such neighbour is better, a
// bound may also move by two layers, or to the next place on either side where fewer bytes cross,
// which pays on a slow link. The first neighbour that is better is taken, bound after bound and
// round after round, until no neighbour is better or the effort is used up. Callers differ in what
// they try (programs, limits of memory, how much better a cut must be) and in their effort.
//
// The cost: a round tries at most six neighbours of each bound. Callers rule most of them out by a
// lower bound, which takes time proportional to the stages, before they evaluate a step.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <vector>

namespace strata {

/// What a search may still spend. It is counted in simulated actions, so that the result is the
/// same on every machine. Seconds of processor time are a second limit, for machines on which that
/// would take too long; a search that they end says so. (Time that other processes take does not
/// count, so that a busy machine finds what an idle one finds.)
class Effort {
 public:
  /// `seconds`: 0 = no limit.
  explicit Effort(int64_t actions, double seconds = 0) : left_(actions), seconds_(seconds) {}

  /// Spends the effort of simulating so many actions; false if it is used up.
  bool Spend(int64_t actions) {
    left_ -= actions;
    return !is_used_up();
  }
  bool is_used_up() const { return left_ < 0 || is_late(); }
  bool is_late() const {
    return seconds_ > 0 &&
           static_cast<double>(std::clock() - begin_) > seconds_ * double{CLOCKS_PER_SEC};
  }

 private:
  int64_t left_;
  double seconds_;
  std::clock_t begin_ = std::clock();
};

struct ClimbRules {
  /// Evaluates a cut and takes it if it is better than the current one; true if it is taken.
  std::function<bool(const std::vector<int>& bounds)> attempt;
  /// The bytes that cross the cut before a layer. Empty: they do not matter.
  std::function<int64_t(int place)> crossing = {};
};

/// Climbs from `bounds` until no neighbour is better or `effort` is used up. Returns the last cut
/// that was taken.
std::vector<int> Climb(std::vector<int> bounds, const ClimbRules& rules, const Effort& effort);

}  // namespace strata
