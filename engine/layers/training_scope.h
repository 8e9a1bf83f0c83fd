// TrainingScope: whether the layers that a thread runs train, for those written in Lua.
#pragma once

namespace strata {

/// While one lives, IsTraining() of its thread is `training`. Nests.
class TrainingScope {
 public:
  explicit TrainingScope(bool training);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;
  TrainingScope& operator=(const TrainingScope&) = delete;

 private:
  const bool outer_;
};

/// True outside of a scope, as of a module of PyTorch's that nobody told otherwise.
bool IsTraining();

}  // namespace strata
