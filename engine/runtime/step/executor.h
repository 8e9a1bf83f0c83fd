// Executor: runs a rank's row. One switch over actions; no Lua, no decisions, no allocation of
// note.
//
// Messages: a receive is posted as soon as a buffer for it is free (Row::slots), often long before
// its RECV, and the action that needs the message waits for it. A send starts where the program
// says and nothing waits for it. Stages of one rank hand over directly.
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

/// What a row ends with, which concerns other ranks or the optimizer.
class ExecutorHost {
 public:
  virtual ~ExecutorHost() = default;
  /// All tied stages of this rank have their gradients (the row's last REDUCE_TIED).
  virtual void ReduceTies() = 0;
  /// In the stage's last backward: the gradients of its layers from `layer` on are complete.
  virtual void OnPassed(Stage& stage, int layer) = 0;
  /// The stage's gradients of all micro-batches are there (REDUCE_GRAD).
  virtual void OnGradients(Stage& stage) = 0;
  /// All stages of this rank are ready for the optimizer (the row's last STEP).
  virtual void Step() = 0;
};

class Executor {
 public:
  /// `stages`: by number, null where the stage is on another rank. `pipe_ranks`: the transport's
  /// rank of each rank of the pipe axis. Everything must outlive the executor.
  Executor(Links& links, std::vector<Stage*> stages, std::vector<int> pipe_ranks,
           Progress& progress);

  /// From the next run on.
  void set_stages(std::vector<Stage*> stages) { stages_ = std::move(stages); }

  /// Runs the row once. Throws what stages, links and host throw; then the executor is of no more
  /// use, as messages may be on their way. A WorldError is logged with the rank's place in its row.
  void Run(const Row& row, const RunSpec& run, ExecutorHost& host);

  /// What the layers of a stage took in the last Run(): its actions without waiting for messages
  /// and data, and without kActionSeconds.
  const StageSeconds& seconds(int stage) const { return seconds_.at(stage); }
  /// Likewise, the beginning of all stages, and what their REDUCE_GRAD took.
  double begin_seconds() const { return begin_seconds_; }
  double reduce_seconds() const { return reduce_seconds_; }
  /// How long the rank had to wait for its feed, in the last Run().
  double data_seconds() const { return data_seconds_; }

 private:
  friend class RowRun;

  Links& links_;
  std::vector<Stage*> stages_;
  const std::vector<int> pipe_ranks_;
  Progress& progress_;
  double data_seconds_ = 0, begin_seconds_ = 0, reduce_seconds_ = 0;
  std::vector<StageSeconds> seconds_;  // by stage
};

}  // namespace strata
