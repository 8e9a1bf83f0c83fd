// TrainingScope: tells layers written in Lua whether they run in training or in evaluation.
#pragma once

namespace strata {

/// While an object lives, IsTraining() on its thread is `training`. Scopes nest.
class TrainingScope {
 public:
  explicit TrainingScope(bool training);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;
  TrainingScope& operator=(const TrainingScope&) = delete;

 private:
  const bool outer_;
};

/// The value of the innermost scope on this thread. True outside of a scope, as for a new module in
/// PyTorch.
bool IsTraining();

}  // namespace strata
