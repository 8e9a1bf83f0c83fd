// Runner: runs the rank's row on the micro-batches of a training step or of an evaluation.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/check/step_check.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/feed.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/executor.h"
#include "engine/runtime/step/input_news.h"
#include "engine/runtime/step/run_tables.h"
#include "engine/runtime/step/totals.h"
#include "engine/runtime/update/rank_stages.h"
#include "engine/runtime/watch/tracer.h"

namespace strata {

/// Requests of users for the step that runs, or for the next one.
struct Requests {
  std::atomic<bool> stop = false;  ///< set by RequestStop()
  std::atomic<bool> save = false;  ///< set by RequestSave(), cleared when a step reads it
};

/// The parameters of a training step besides its data.
struct StepAsked {
  int64_t step = 0;         ///< steps that were done before
  int64_t total_steps = 0;  ///< of the whole training, for its lr_schedule
  Requests& requests;       ///< read at the end of the step
  bool record_gradients = false;
  bool record_histograms = false;
  /// Fill in Totals::stage_seconds and the fields that depend on it.
  bool times_stages = false;
  bool recut = false;  ///< the value for Totals::recut; counts on rank 0
};

/// The parameters of a run of an evaluation.
struct EvaluationAsked {
  /// RunSpec::first_micro_batch, counted over all runs of the evaluation.
  int64_t first_micro_batch = 0;
  Outputs* outputs = nullptr;      ///< null, or receives the last stage's outputs
  OutputReader* reader = nullptr;  ///< null, or reads each output with its target
  bool stop = false;               ///< the value for Totals::stop
};

/// The parameters of a forward without targets, possibly of single tokens of texts (see RunSpec).
struct PredictionAsked {
  int64_t first_micro_batch = 0;
  std::vector<KeptTokens*> kept = {};
  LayerWatch* watch = nullptr;
};

/// In a training step the executor runs the row. Its REDUCE_GRADs sum a stage's gradients over the
/// replicas while other stages still compute. Its last STEP sums the Totals over all ranks, with
/// one collective per step, and runs the optimizers if losses and gradients are finite. An
/// evaluation runs its row and then sums the Totals.
///
/// Why all ranks wait for each other there: the norm for clipping needs all gradients, and if the
/// loss or a gradient of any rank is not finite, no rank may update. A rank that updated while the
/// pipeline still drains would not know of the others' gradients, and could not take its update
/// back. The wait costs little: a rank's update overlaps with the beginning of the others' next
/// step. A step that is not finite runs once more under an examiner, which names the first layer.
class Runner : private ExecutorHost {
 public:
  /// All arguments must outlive the runner. `tracer`: null without job.trace. `programs`: those of
  /// the plan.
  Runner(const RankContext& context, Links& links, RankStages& stages, Tracer* tracer,
         std::shared_ptr<ProvedPrograms> programs);

  /// Continues with the current stages and the current plan, after layers have moved.
  void Rebuild(std::shared_ptr<ProvedPrograms> programs);

  /// Collective: runs a step and returns its Totals. If they are finite, the optimizers have run.
  const Totals& Train(Feed& feed, const StepAsked& asked);
  /// Collective: runs a step once more to examine what it computes. Afterwards the gradients and
  /// the Totals are the same as before, no optimizer has run, and statistics of layers were not
  /// updated again.
  void Examine(Feed& feed, int64_t step, Examiner& examiner);
  /// Collective: runs the optimizers with the gradients and Totals of the last step, which were not
  /// finite.
  void Update();
  /// Collective: runs a part of an evaluation and returns its Totals.
  const Totals& Evaluate(Feed& feed, const EvaluationAsked& asked);
  /// Computes outputs only: no targets are read, and no Totals are summed. Collective within the
  /// replica. `outputs` must have one entry for each micro-batch of all replicas.
  void Predict(Feed& feed, Outputs& outputs, const PredictionAsked& asked);

  /// The sorted names of the loss parts. Empty until some micro-batch reports parts; from then on
  /// equal on all ranks.
  const std::vector<std::string>& part_names() const { return part_names_; }
  /// Digests of the gradients of the last step, if it recorded them.
  const std::vector<TensorDigest>& gradients() const { return gradients_; }
  /// Histograms of the gradients by path, if the last step recorded them. Null if the step was not
  /// finite.
  const Value& histograms() const { return histograms_; }

 private:
  // ExecutorHost
  void ReduceTies() override { stages_.ties().Reduce(context_.progress); }
  void OnPassed(Stage& stage, int layer) override { stages_.OnPassed(stage, layer); }
  void OnGradients(Stage& stage) override { stages_.OnGradients(stage, totals_.squares, fetch_); }
  void Step() override;

  Totals EmptyTotals(const Feed& feed, int64_t chunks) const;
  void Begin(Feed& feed);
  void BeginStep(Feed& feed, int64_t step);
  RunTables& tables() { return *tables_.back(); }
  const Boundaries& BoundariesOf(size_t m);
  void RunRow(const Row& row);
  void RunOptimizers();
  void CollectLosses();
  void CollectOutputs(const Feed& feed, Outputs& outputs) const;
  void CollectLossParts(int m, size_t place);
  void ShareNames();
  void CollectOwnNumbers();
  void CollectStageSeconds(double computed);
  double LrFactorOfStep() const;

  const RankContext& context_;
  RankStages& stages_;
  Tracer* const tracer_;
  /// One table per plan that the training has had; the last is that of the current plan. The others
  /// are kept because a trace refers to their actions.
  std::vector<std::unique_ptr<RunTables>> tables_;
  Executor executor_;
  InputNews news_;
  std::optional<StepCheck> check_;  // set if the job has checked steps

  // State of the current or the last run.
  const StepAsked* asked_ = nullptr;  // null outside of a training step
  RunSpec run_;
  int64_t begin_ = 0;  // when the row began, in nanoseconds
  // Nanoseconds that the rank had waited before the row.
  int64_t waited_before_ = 0;
  // Processor seconds that the thread had used before the row.
  double processor_before_ = 0;
  double update_seconds_ = 0;  // of the optimizers, in the last step
  // Seconds of reading inputs to know their shapes, if the data can have any.
  double inputs_seconds_ = 0;
  Totals totals_{0, 0, 0};
  HostFetch fetch_;  // fetches numbers for totals_ from the device
  std::vector<TensorDigest> gradients_;
  Value histograms_;

  // The loss parts. Before they are shared, they are known only on ranks with a loss.
  std::vector<std::string> part_names_;
  // True once this rank has computed a loss: the names must stay the same from then on.
  bool has_losses_ = false;
  bool names_are_shared_ = false;
};

}  // namespace strata
