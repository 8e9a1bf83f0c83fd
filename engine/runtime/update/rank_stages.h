// RankStages: the stages of a rank, and what becomes of their gradients and parameters in a step.
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

/// A stage of this rank, with what updates it.
struct OwnStage {
  std::unique_ptr<Stage> stage;
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<Optimizer> optimizer;
  size_t first_parameter = 0;  ///< among this rank's
  GradientSquares squares = {};
};

/// In a step: OnGradients() for each stage, as its gradients are there; then FinishGradients(), and
/// Update() unless something is not finite. `squares` are those of Totals; `fetch` brings
/// an accelerator's.
class RankStages {
 public:
  /// Collective: builds the layers. The context must outlive this object.
  explicit RankStages(const RankContext& context);

  /// Collective: drops the stages and builds those that the plan has by now. They have initial
  /// values, and their optimizers have done no step.
  void Rebuild(const Doing& doing);

  /// In ascending order.
  const std::vector<OwnStage>& own() const { return own_; }
  /// Null where a stage is on another rank.
  std::vector<Stage*> by_number() const;
  /// The job's last stage; null where it is on another rank.
  const Stage* last() const;
  const ParameterTable& parameters() const { return *parameters_; }
  TieTable& ties() { return *ties_; }
  /// Of the job; the same on all ranks.
  LossScale& loss_scale() { return loss_scale_; }
  /// Likewise.
  Monitors& monitors() { return monitors_; }

  /// Whether sums over the replicas begin while the backward goes on. They run on an accelerator's
  /// stream; on the CPU they would take its cores. Of several stages the pieces' order could differ
  /// between replicas, which may have fewer micro-batches.
  bool sums_early() const { return replicas_ && !context_.device.is_cpu() && own_.size() == 1; }
  /// In the last backward: the gradients of layers from `layer` on are complete.
  void OnPassed(Stage& stage, int layer);
  /// REDUCE_GRAD: starts the sum of the stage's gradients over the replicas. Without replicas takes
  /// their squares.
  void OnGradients(Stage& stage, std::span<double> squares, HostFetch& fetch);
  /// Waits for the sums and takes the squares of what this replica looks after. Each parameter is
  /// counted once, by one rank or by several. `averages_state`: makes statistics of layers the mean
  /// over the replicas.
  void FinishGradients(std::span<double> squares, HostFetch& fetch);
  /// Collective: the digests of all gradients of the model.
  std::vector<TensorDigest> GradientDigests();
  /// Collective: ParameterTable::Histograms().
  Value GradientHistograms(double divisor);
  /// Collective: ParameterTable::Copy().
  at::Tensor CopyTensor(const std::string& path, ParameterTable::What what);
  /// Runs the optimizers, as Optimizer::Step().
  void Update(double lr_factor, double divisor);
  /// With job.ema: exchanges all parameters with their averages. Collective over the replicas.
  void SwapAverages();

  /// Copies the statistics of layers (BatchNorm's), to be taken back where a step does not count.
  void KeepState();
  void RestoreState();
  bool has_finite_weights() const;

 private:
  void GatherGradients();
  GradientSquares SquaresOf(const OwnStage& own) const;

  const RankContext& context_;
  Group* const replicas_;  // null for one replica
  std::vector<OwnStage> own_;
  std::optional<ParameterTable> parameters_;
  std::optional<TieTable> ties_;
  LossScale loss_scale_;
  Monitors monitors_;
  std::vector<at::Tensor> kept_state_;  // of layers, as KeepState() found it
};

}  // namespace strata
