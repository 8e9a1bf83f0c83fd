// Monitors: what a training looks at in its evaluations. When to stop (job.stop), which save is the
// best (job.save.best), and what a plateau takes off the learning rate. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/job/job.h"

namespace strata {

/// The best of a number so far, and how long ago it was.
class Best {
 public:
  /// Whether the value is better than all before, by more than spec.min_delta.
  bool IsBetter(const MonitorSpec& spec, double value) const;
  /// The same; the value is one of these then.
  bool Take(const MonitorSpec& spec, double value);
  int64_t worse() const { return worse_; }  ///< values in a row that were no better
  const std::optional<double>& value() const { return best_; }

  Value state() const;
  void set_state(const Value& state);

 private:
  std::optional<double> best_;
  int64_t worse_ = 0;
};

/// PyTorch's ReduceLROnPlateau.
class Plateau {
 public:
  /// `options`: of the lr_schedule "plateau".
  Plateau(const Value& options, bool larger_is_better);

  void Take(double value);
  double factor() const { return factor_; }
  void set_factor(double factor) { factor_ = factor; }

  Value state() const;
  void set_state(const Value& state);

 private:
  bool IsBetter(double value) const;

  const Value options_;
  const bool larger_is_better_;
  std::optional<double> best_;
  int64_t bad_ = 0, cooldown_ = 0;
  double factor_ = 1;
};

/// Of one training; every rank takes the same numbers.
class Monitors {
 public:
  explicit Monitors(const Job& job);

  struct Verdict {
    bool is_best = false;
    std::string why_stopped = {};  ///< WhyStopped()
  };
  /// After the evaluation behind `step` steps. `numbers`: "test.loss" and "test.NAME" of metrics.
  Verdict Take(int64_t step, const Value& numbers);
  /// The save of the best that Take() told of has failed: the best before stands, as its save does.
  void BestFailed() { best_ = best_before_; }
  /// What the best save has, which was made after `step` steps: its state(). A training that goes
  /// on from a save before that evaluation knows of it in the evaluations behind that step.
  void FindBest(int64_t step, const Value& state);
  /// That multiplies the schedule's.
  double lr_factor() const { return plateau_ ? plateau_->factor() : 1; }

  /// What a save holds; null where nothing is evaluated before the end.
  Value state() const;
  /// Of another number, or another direction, only what the plateau has taken off the learning rate
  /// is gone on with. Gives what the user should know of that, a line each.
  std::vector<std::string> set_state(const Value& state);
  /// Whether a training that goes on behind `step` steps has not seen that step's evaluation: a
  /// save begins before it.
  bool owes(int64_t step, int64_t steps_per_epoch = 0) const;
  /// Why the training has ended after `step` steps, by what it has seen so far; "" = it has not.
  std::string WhyStopped(int64_t step) const;

 private:
  const MonitorSpec stop_spec_, best_spec_, plateau_spec_;
  const int64_t every_;
  int64_t last_ = 0;  ///< steps done at the last evaluation
  Best stop_, best_, best_before_;
  std::optional<std::pair<int64_t, double>> found_;  // FindBest(): step and value
  std::optional<Plateau> plateau_;
};

/// Whether more of what "test.NAME" says is better.
bool LargerIsBetter(const std::string& monitor);

}  // namespace strata
