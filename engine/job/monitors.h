// Monitors: the decisions that a training makes from its evaluations: when to stop (job.stop),
// which save is the best (job.save.best), and by how much a plateau lowers the learning rate.
// Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/job/job.h"

namespace strata {

/// The best value of a number so far, and how many evaluations ago it was.
class Best {
 public:
  /// True if the value is finite and better than all before by more than spec.min_delta.
  bool IsBetter(const MonitorSpec& spec, double value) const;
  /// As IsBetter(), and records the value.
  bool Take(const MonitorSpec& spec, double value);
  int64_t worse() const { return worse_; }  ///< values in a row since the best one
  const std::optional<double>& value() const { return best_; }

  Value state() const;
  void set_state(const Value& state);

 private:
  std::optional<double> best_;
  int64_t worse_ = 0;
};

/// The rule of PyTorch's ReduceLROnPlateau.
class Plateau {
 public:
  /// `options` are those of the lr_schedule "plateau".
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

/// The monitors of one training. Every rank passes them the same numbers, so all ranks decide
/// alike.
class Monitors {
 public:
  explicit Monitors(const Job& job);

  struct Verdict {
    bool is_best = false;
    std::string why_stopped = {};  ///< WhyStopped()
  };
  /// Records the evaluation after `step` steps. `numbers` holds "test.loss" and "test.NAME" of
  /// metrics.
  Verdict Take(int64_t step, const Value& numbers);
  /// Call this if the save that the last Take() declared the best could not be written: the
  /// previous best counts again, since its save is still there.
  void BestFailed() { best_ = best_before_; }
  /// Reports the best save on disk: it was made after `step` steps and has this state(). A training
  /// that resumes from an older save takes it into account from the first evaluation after `step`.
  void FindBest(int64_t step, const Value& state);
  /// A factor of the learning rate, in addition to that of the schedule.
  double lr_factor() const { return plateau_ ? plateau_->factor() : 1; }

  /// The state that a save holds; null if nothing is evaluated before the end.
  Value state() const;
  /// Restores a state. If it belongs to another number or direction than the job's, it is ignored,
  /// except for the factor by which the plateau has lowered the learning rate. Returns notes about
  /// this for the user, one line each.
  std::vector<std::string> set_state(const Value& state);
  /// True if a training that resumes after `step` steps still has to run that step's evaluation.
  /// This happens because a save begins before the evaluation of its step.
  bool owes(int64_t step, int64_t steps_per_epoch = 0) const;
  /// The reason why the training has ended after `step` steps; "" if it has not.
  std::string WhyStopped(int64_t step) const;

 private:
  const MonitorSpec stop_spec_, best_spec_, plateau_spec_;
  const int64_t every_;
  int64_t last_ = 0;  ///< steps done before the last evaluation
  Best stop_, best_, best_before_;
  std::optional<std::pair<int64_t, double>> found_;  // step and value of FindBest()
  std::optional<Plateau> plateau_;
};

/// True if larger values of the number "test.NAME" are better.
bool LargerIsBetter(const std::string& monitor);

}  // namespace strata
