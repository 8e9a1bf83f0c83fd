// WeightNews: the weight of every micro-batch's loss, told to every rank of a pipeline, where only
// the last stage knows it: a target may have any number of rows that count. The news go from the
// last stage back towards the first behind the run's gradients, on the same links, as the ranks
// drain one after the other; whoever has them can update its parameters while others still work.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "engine/comm/transport.h"
#include "engine/plan/plan.h"
#include "engine/runtime/news_route.h"
#include "engine/runtime/progress.h"

namespace strata {

class WeightNews {
 public:
  /// `rank`: of the transport. `pipe_ranks`: its rank of each rank of the pipe axis. Tensors travel
  /// on `device`. Everything must outlive this object.
  WeightNews(Links& links, int rank, const Plan& plan, const std::vector<int>& pipe_ranks,
             c10::Device device, Progress& progress);

  /// Collective over the pipeline, when a rank's row is done but for its STEPs: the weights of the
  /// rank of the last stage, as many everywhere. Throws WorldError as links do.
  void Share(std::vector<double>& weights);

 private:
  Links& links_;
  const c10::Device device_;
  Progress& progress_;
  const NewsRoute route_;
};

}  // namespace strata
