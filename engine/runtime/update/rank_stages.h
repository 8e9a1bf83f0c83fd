// RankStages: the stages of a rank, and the handling of their gradients and parameters in a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/job/loss_scale.h"
#include "engine/job/monitors.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/update/gradient_reducer.h"
#include "engine/runtime/update/optimizer.h"
#include "engine/runtime/update/parameter_table.h"
#include "engine/runtime/update/reductions.h"
#include "engine/runtime/update/tie_table.h"

namespace strata {

/// A stage of this rank with its reducer and its optimizer.
struct OwnStage {
  std::unique_ptr<Stage> stage;
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<Optimizer> optimizer;
  size_t first_parameter = 0;  ///< index among all parameters of this rank
  GradientSquares squares = {};
};

/// Order of calls in a step: OnGradients() for each stage, when its gradients are complete; then
/// FinishGradients(); then Update(), unless something is not finite. `squares` are those of Totals;
/// `fetch` fetches them from an accelerator.
class RankStages {
 public:
  /// Collective: builds the layers. `context` must outlive this object.
  explicit RankStages(const RankContext& context);

  /// Collective: drops the stages and builds those of the current plan, with initial values and
  /// with optimizers that have made no step.
  void Rebuild(const Doing& doing);

  /// In ascending order of stages.
  const std::vector<OwnStage>& own() const { return own_; }
  /// Indexed by stage number; null if the stage is on another rank.
  std::vector<Stage*> by_number() const;
  /// The job's last stage; null if it is on another rank.
  const Stage* last() const;
  const ParameterTable& parameters() const { return *parameters_; }
  TieTable& ties() { return *ties_; }
  /// The state of the dynamic loss scale; the same on all ranks.
  LossScale& loss_scale() { return loss_scale_; }
  /// The state of the job's monitors; the same on all ranks.
  Monitors& monitors() { return monitors_; }

  /// True if sums over the replicas start while the backward is still running. Only on
  /// accelerators, where they run on a stream of their own, or if that frees memory (zero = 2); on
  /// the CPU they take its cores. Only with one stage per rank: with several, replicas with fewer
  /// micro-batches might start the pieces in another order.
  bool sums_early() const {
    return replicas_ && (!context_.device.is_cpu() || context_.job.zero == 2) && own_.size() == 1;
  }
  /// Said before a step: whether all replicas have equally many micro-batches in it.
  void set_replicas_are_even(bool even) { replicas_are_even_ = even; }
  /// Called in the last backward: the gradients of layers from `layer` on are complete.
  void OnPassed(Stage& stage, int layer);
  /// REDUCE_GRAD: starts to sum the stage's gradients over the replicas. Without replicas, computes
  /// their squares instead.
  void OnGradients(Stage& stage, std::span<double> squares, HostFetch& fetch);
  /// Waits for the sums and computes the squares of this replica's shares. Each parameter is
  /// counted exactly once in all. Makes statistics of layers the mean over the replicas.
  void FinishGradients(std::span<double> squares, HostFetch& fetch);
  /// Collective: digests of all gradients of the model.
  std::vector<TensorDigest> GradientDigests();
  /// Collective. Like ParameterTable::Histograms().
  Value GradientHistograms(double divisor);
  /// Collective. Like ParameterTable::Copy().
  at::Tensor CopyTensor(const std::string& path, ParameterTable::What what);
  /// Runs the optimizers. Arguments as for Optimizer::Step().
  void Update(double lr_factor, double divisor);
  /// With job.ema: exchanges all parameters with their averages. Collective over the replicas.
  void SwapAverages();

  /// Copies the statistics of layers (BatchNorm's), so that RestoreState() can undo a step that is
  /// skipped.
  void KeepState();
  void RestoreState();
  bool has_finite_weights() const;

 private:
  void GatherGradients();
  void DropGathered();
  Progress* waiting() const;
  GradientSquares SquaresOf(const OwnStage& own) const;

  const RankContext& context_;
  Group* const replicas_;  // null if there is one replica
  std::vector<OwnStage> own_;
  std::optional<ParameterTable> parameters_;
  std::optional<TieTable> ties_;
  LossScale loss_scale_;
  Monitors monitors_;
  bool replicas_are_even_ = true;
  std::vector<at::Tensor> kept_state_;  // copies of the layers' buffers, made by KeepState()
};

}  // namespace strata
