// StageRuns: a stage as runs of layers which keep their activations, or are computed again,
// together; what each run costs, and how runs add up. SumLayers() adds those that a plan says,
// recompute_front.h looks for good ones. Private to the package.
#pragma once

#include <span>
#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

/// Neighbouring layers of a stage.
struct Run {
  int begin = 0;
  int end = 0;  ///< one past the last
  bool is_recomputed = false;
};

/// The runs of layers `begin` to `end` by their segments (LayerPlan::segment), ascending.
std::vector<Run> RunsOf(int begin, int end, std::span<const int> segments);

/// Of one micro-batch.
struct RunCost {
  Work recompute;           ///< its forward, where that runs again
  int64_t input_bytes = 0;  ///< kept of what goes in
  int64_t kept_bytes = 0;   ///< kept beside it until the backward
  int64_t again_bytes = 0;  ///< what it has beside it once it was computed again
  bool keeps_output = false;
  // At the highest while it runs, beside its input and what the runs before it keep:
  int64_t forward_peak = 0;
  int64_t backward_peak = 0;
  int64_t input_grad_peak = 0;
};

class StageRuns {
 public:
  /// Layers `begin` to `end` as one stage, as SumLayers() takes them. `costs` must outlive it.
  StageRuns(const ModelCosts& costs, int begin, int end);

  int begin() const { return begin_; }
  int end() const { return end_; }

  /// The stage before any of its runs is added: what does not depend on them.
  const StageCost& none() const { return none_; }
  RunCost CostOf(const Run& run) const;
  /// The cost of `run` and of `rest`, the runs behind it. Peaks count what these runs hold, and
  /// nothing of the runs before them. `is_last_again`: `run` is the last one that is recomputed; R
  /// computes it again, and the runs behind it go backward while its activations are there.
  static StageCost Add(const RunCost& run, StageCost rest, bool is_last_again);

 private:
  /// What is kept of a run with its graph, the run's input left out; `counted` says whether the
  /// tensor between two layers was counted already.
  struct Chain {
    int64_t bytes = 0;
    bool counted = true;
  };

  const LayerCost& layer(int i) const { return costs_.layers[i]; }
  bool has_loss() const { return end_ == static_cast<int>(costs_.layers.size()); }
  bool has_graph(int i) const { return i >= first_with_gradient_; }
  /// Whether a gradient of layer i's input is computed.
  bool gives_gradient(int i) const { return begin_ > 0 || i > first_with_gradient_; }
  int64_t KeptByLoss() const { return has_loss() ? costs_.loss.kept_bytes : 0; }
  int64_t DeferredInput(int i) const {
    return layer(i).defers_input ? layer(i).input_bytes - layer(i).carried_input : 0;
  }
  int64_t Deferred(int i) const { return layer(i).deferred_bytes + DeferredInput(i); }

  void AddWork();
  void Keep(int i, Chain& chain) const;
  std::vector<int64_t> KeptUpTo(const Run& run) const;
  int64_t ForwardPeak(const Run& run) const;
  int64_t BackwardPeak(const Run& run, const std::vector<int64_t>& kept, bool defers) const;

  const ModelCosts& costs_;
  const int begin_, end_;
  int first_with_gradient_;
  std::vector<int64_t> deferred_after_;  ///< by the layers of the stage behind each
  StageCost none_;
};

}  // namespace strata
