// StageRuns: divides a stage into runs of layers that keep their activations, or are recomputed,
// together; gives the cost of each run and adds them up. SumLayers() adds the runs that a plan has,
// recompute_front.h searches for good ones. Private to the package.
#pragma once

#include <span>
#include <vector>

#include "engine/cost/layer_costs.h"
#include "engine/cost/stage_tensors.h"

namespace strata {

/// Neighbouring layers of a stage that are all kept, or all recomputed together.
struct Run {
  int begin = 0;
  int end = 0;  ///< one past the last
  bool is_recomputed = false;
};

/// The runs of layers `begin` to `end` given their segments (LayerPlan::segment), in ascending
/// order.
std::vector<Run> RunsOf(int begin, int end, std::span<const int> segments);

/// The cost of a run for one micro-batch.
struct RunCost {
  Work recompute;  ///< the forward of the run, if it is recomputed
  // The work of a backward that is done in chunks (ModelCosts::chunk_rows): by the forward, or
  // after a recomputation.
  Work forward;
  Work input_grad;
  int64_t input_bytes = 0;   ///< kept of the run's input, with the values that cross there
  int64_t kept_bytes = 0;    ///< kept until the backward, beside the input
  int64_t again_bytes = 0;   ///< held beside the input after recomputation
  int64_t shared_bytes = 0;  ///< of the next run's input: the part that this run keeps
  bool keeps_output = false;
  // Peaks while the run computes, without its input and what the runs before it keep:
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  int64_t input_grad_peak = 0;
  int64_t again_peak = 0;  ///< of the recomputation; 0 if the run is kept
  // Beside it, if a backward recomputes the run: gradients, and for I what is deferred.
  int64_t again_gradients = 0;
  int64_t again_deferred = 0;
};

class StageRuns {
 public:
  /// Layers `begin` to `end` as one stage, as in SumLayers(). `costs` must outlive this object.
  StageRuns(const ModelCosts& costs, int begin, int end);

  int begin() const { return begin_; }
  int end() const { return end_; }

  /// The cost of the stage before any run is added: everything that does not depend on the runs.
  const StageCost& none() const { return none_; }
  RunCost CostOf(const Run& run) const;
  /// The cost of `run` followed by `rest`, the runs behind it. Peaks count what these runs hold,
  /// and nothing of the runs before them. `is_last_again`: `run` is the last recomputed run. R
  /// computes it again, and the runs behind it go backward while its activations are in memory.
  static StageCost Add(const RunCost& run, StageCost rest, bool is_last_again);

 private:
  class Keeper;
  /// Bytes of gradients: of the chain's tensor, and of the values of connections beside it.
  struct Given {
    int64_t chain = 0, values = 0;
  };

  const LayerCost& layer(int i) const { return costs_.layers[i]; }
  bool has_loss() const { return end_ == static_cast<int>(costs_.layers.size()); }
  /// True for the job's last layer if it runs in chunks.
  bool in_chunks(int i) const {
    return costs_.chunk_rows > 0 && i + 1 == static_cast<int>(costs_.layers.size());
  }
  /// The bytes of the layer's output as a whole; 0 for a head in chunks.
  int64_t OutputBytes(int i) const { return in_chunks(i) ? 0 : layer(i).output_bytes; }
  bool has_graph(int i) const { return i >= first_with_gradient_; }
  /// True if a gradient of layer i's input is computed.
  bool gives_gradient(int i) const { return i > first_learning_; }
  int64_t KeptByLoss() const { return has_loss() ? costs_.loss.kept_bytes : 0; }
  int64_t DeferredInput(int i) const {
    return layer(i).defers_input ? layer(i).input_bytes - layer(i).carried_input : 0;
  }
  int64_t Deferred(int i) const { return layer(i).deferred_bytes + DeferredInput(i); }

  void AddWork();
  int64_t GradientsAt(int i) const;
  Given GivenTo(const Run& run) const;
  int64_t SharedWithNext(const Run& run, Keeper& held) const;
  void Keep(int i, Keeper& keeper) const;
  std::vector<int64_t> KeptUpTo(const Run& run, Keeper& keeper) const;
  int64_t ForwardPeak(const Run& run, bool keeps) const;
  int64_t BackwardPeak(const Run& run, const std::vector<int64_t>& kept, bool defers) const;

  const ModelCosts& costs_;
  const int begin_, end_;
  const StageTensors tensors_;
  const int first_learning_;       ///< the job's first layer that learns; it may be in any stage
  const int first_with_gradient_;  ///< the first layer of this stage whose forward makes a graph
  std::vector<int64_t> deferred_after_;  ///< per layer: deferred bytes of the layers behind it
  StageCost none_;
};

}  // namespace strata
