// InputNews: tells every rank of a pipeline the shapes of a run's micro-batches, if only the first
// stage knows them because a user's data function may return any shapes. Between CPUs the news are
// sent from stage to stage before the run's own messages, on the same links: eight bytes per step
// if nothing has changed since the last one, followed by the shapes if something has. On
// accelerators the links carry tensors of the device, and the host would have to wait for all
// queued work; so there the ranks exchange the news over the host, all with all.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/plan/plan.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// The news travel from the first stage on, from stage to stage. Every rank receives them once,
/// with the first of its stages that they reach.
class InputNews {
 public:
  /// `pipe_ranks`: the transport's rank for each rank of the pipe axis. `links`: those of the
  /// transport. All arguments must outlive this object.
  InputNews(Transport& transport, Links& links, const Plan& plan,
            const std::vector<int>& pipe_ranks, c10::Device device, Progress& progress);

  /// True if all ranks must call Share() for every run, even if they know its inputs.
  bool is_for_all() const { return !device_.is_cpu(); }
  /// Collective over the pipeline, or over all ranks if is_for_all(). Returns what `read` returns
  /// on the rank of the first stage; only that rank calls `read`. Throws WorldError as links do,
  /// and what `read` throws.
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
  int from_ = -1;        // the rank that tells this one; -1 on the first
  std::vector<int> to_;  // the ranks that this one tells
  std::vector<TensorSpecs> last_;
};

}  // namespace strata
