// InputNews: the shapes of a run's micro-batches, told to every rank of a pipeline, where only the
// first knows them: a user's data function may give any. The news go from stage to stage ahead of
// the run's own messages, on the same links: eight bytes a step when nothing has changed since the
// last one, the shapes behind them when something has.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/plan/plan.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// The news go from the first stage on, from stage to stage, and every rank is told once: on the
/// way to the first of its stages that they reach.
class InputNews {
 public:
  /// `rank`: of the transport. `pipe_ranks`: its rank of each rank of the pipe axis. Tensors travel
  /// on `device`. Everything must outlive this object.
  InputNews(Links& links, int rank, const Plan& plan, const std::vector<int>& pipe_ranks,
            c10::Device device, Progress& progress);

  /// Collective over the pipeline: what `read` gives on the rank of the first stage, which alone
  /// calls it. Throws WorldError as links do, and what `read` throws.
  std::vector<TensorSpecs> Share(const std::function<std::vector<TensorSpecs>()>& read);

 private:
  void Receive();
  void Send(bool changed);

  Links& links_;
  const c10::Device device_;
  Progress& progress_;
  int from_ = -1;        // who tells this rank; -1: nobody, it knows
  std::vector<int> to_;  // whom it tells
  std::vector<TensorSpecs> last_;
};

}  // namespace strata
