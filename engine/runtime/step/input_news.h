// InputNews: the shapes of a run's micro-batches, told to every rank of a pipeline, where only the
// first knows them: a user's data function may give any. Between CPUs the news go from stage to
// stage ahead of the run's own messages, on the same links: eight bytes a step when nothing has
// changed since the last one, the shapes behind them when something has. On accelerators the links
// carry tensors of the device, and the host would wait for all that the device has still to do:
// there they go over the host, from all ranks to all.
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
  /// `pipe_ranks`: the transport's rank of each rank of the pipe axis. `links`: the transport's.
  /// Everything must outlive this object.
  InputNews(Transport& transport, Links& links, const Plan& plan,
            const std::vector<int>& pipe_ranks, c10::Device device, Progress& progress);

  /// Whether all ranks must share the news of every run, also of one whose inputs they know.
  bool is_for_all() const { return !device_.is_cpu(); }
  /// Collective over the pipeline, or over all ranks: what `read` gives on the rank of the first
  /// stage, which alone calls it. Throws WorldError as links do, and what `read` throws.
  std::vector<TensorSpecs> Share(const std::function<std::vector<TensorSpecs>()>& read);

 private:
  void ShareWithAll(const std::function<std::vector<TensorSpecs>()>& read);
  void Receive();
  void Send(bool changed);

  Transport& transport_;
  Links& links_;
  const int root_;  // the rank of the first stage
  const c10::Device device_;
  Progress& progress_;
  int from_ = -1;        // who tells this rank; -1: nobody, it knows
  std::vector<int> to_;  // whom it tells
  std::vector<TensorSpecs> last_;
};

}  // namespace strata
