// Executor: runs a rank's row of the program. It is one switch over the kinds of actions: no Lua,
// no decisions, hardly any allocation.
//
// Messages: a receive is posted as soon as a buffer for it is free (Row::slots), often long before
// its RECV; the action that needs the message waits for it. A send starts where the program says,
// and no action waits for it. Neighbouring stages on one rank hand tensors over directly.
#pragma once

#include <utility>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/forecast/step_window.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/step/row.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// The actions of a row that concern other ranks or the optimizer.
class ExecutorHost {
 public:
  virtual ~ExecutorHost() = default;
  /// Called when all tied stages of this rank have their gradients (the row's last REDUCE_TIED).
  virtual void ReduceTies() = 0;
  /// Called in a stage's last backward when the gradients of its layers from `layer` on are
  /// complete.
  virtual void OnPassed(Stage& stage, int layer) = 0;
  /// Called when the stage has its gradients of all micro-batches (REDUCE_GRAD).
  virtual void OnGradients(Stage& stage) = 0;
  /// Called when all stages of this rank are ready for the optimizer (the row's last STEP).
  virtual void Step() = 0;
};

class Executor {
 public:
  /// `stages`: by number, null if the stage is on another rank. `pipe_ranks`: the transport's rank
  /// for each rank of the pipe axis. All arguments must outlive the executor.
  Executor(Links& links, std::vector<Stage*> stages, std::vector<int> pipe_ranks,
           Progress& progress);

  /// Replaces the stages, from the next run on.
  void set_stages(std::vector<Stage*> stages) { stages_ = std::move(stages); }

  /// Runs the row once. Throws what stages, links and host throw. The executor cannot be used
  /// afterwards, because messages may be on their way. For a WorldError the rank's position in its
  /// row is logged.
  void Run(const Row& row, const RunSpec& run, ExecutorHost& host);

  /// The seconds that the layers of a stage took in the last Run(): the time of its actions,
  /// without waiting for messages and data, and without kActionSeconds per action.
  const StageSeconds& seconds(int stage) const { return seconds_.at(stage); }
  /// For the last Run(): the seconds of Stage::Begin() of all stages, and of their REDUCE_GRAD.
  double begin_seconds() const { return begin_seconds_; }
  double reduce_seconds() const { return reduce_seconds_; }
  /// The seconds that the rank waited for its feed in the last Run().
  double data_seconds() const { return data_seconds_; }

 private:
  friend class RowRun;

  Links& links_;
  std::vector<Stage*> stages_;
  const std::vector<int> pipe_ranks_;
  Progress& progress_;
  double data_seconds_ = 0, begin_seconds_ = 0, reduce_seconds_ = 0;
  std::vector<StageSeconds> seconds_;  // indexed by stage
};

}  // namespace strata
