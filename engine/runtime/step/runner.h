// Runner: runs the rank's row on the micro-batches of a training step or of an evaluation.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

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

/// What somebody asks of the step that runs, or of the next one.
struct Requests {
  std::atomic<bool> stop = false;  ///< RequestStop()
  std::atomic<bool> save = false;  ///< RequestSave(), until it is heard
};

/// What belongs to a training step beside its data.
struct StepAsked {
  int64_t step = 0;         ///< steps done before
  int64_t total_steps = 0;  ///< of the training, for its lr_schedule
  Requests& requests;       ///< read at the step's end
  bool record_gradients = false;
  bool record_histograms = false;
  bool times_stages = false;  ///< Totals::stage_seconds and what follows them are wanted
  bool recut = false;         ///< Totals::recut
};

/// What belongs to a run of an evaluation.
struct EvaluationAsked {
  int64_t first_micro_batch = 0;   ///< RunSpec::first_micro_batch: among those of all its runs
  Outputs* outputs = nullptr;      ///< null, or receives the last stage's outputs
  OutputReader* reader = nullptr;  ///< null, or sees each output with its target
  bool stop = false;               ///< Totals::stop
};

/// What belongs to a forward without targets, maybe of some tokens of texts (RunSpec).
struct PredictionAsked {
  int64_t first_micro_batch = 0;
  std::vector<KeptTokens*> kept = {};
  LayerWatch* watch = nullptr;
};

/// A step: the row runs on the executor. Its REDUCE_GRAD sums the stage's gradients over the
/// replicas while other stages still drain. Its last STEP sums the Totals over all ranks, one
/// collective a step, and runs the optimizers if losses and gradients are finite. So no rank
/// updates before all know of the others' gradients, and a rank's update overlaps with what others
/// begin the next step with. An evaluation: the row, then the sum of the Totals.
class Runner : private ExecutorHost {
 public:
  /// Everything must outlive the runner. `tracer`: null where nobody asked for a trace. `programs`:
  /// the plan's.
  Runner(const RankContext& context, Links& links, RankStages& stages, Tracer* tracer,
         std::shared_ptr<ProvedPrograms> programs);

  /// Goes on with the stages, and the plan, that the ranks have by now.
  void Rebuild(std::shared_ptr<ProvedPrograms> programs);

  /// Collective: runs a step and gives its Totals. They are finite where the optimizers have run.
  const Totals& Train(Feed& feed, const StepAsked& asked);
  /// Collective: runs a step once more, to look at what it computes. The gradients and Totals of
  /// the step before it stay, no optimizer runs, and statistics of layers are not counted again.
  void Examine(Feed& feed, int64_t step, Examiner& examiner);
  /// Collective: runs the optimizers with the gradients and Totals of the last step.
  void Update();
  /// Collective: evaluates.
  const Totals& Evaluate(Feed& feed, const EvaluationAsked& asked);
  /// Computes outputs alone: no targets are asked for, no ranks add up. Collective within the
  /// replica. `outputs`: as many as the micro-batches of all replicas.
  void Predict(Feed& feed, Outputs& outputs, const PredictionAsked& asked);

  /// The names of the loss's parts, in ascending order, once a loss had some; then on every rank.
  const std::vector<std::string>& part_names() const { return part_names_; }
  /// The gradients of the last step, where it recorded them.
  const std::vector<TensorDigest>& gradients() const { return gradients_; }
  /// Likewise: of each, by its path. Null for a step that is not finite.
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
  /// Those of the plan are the last ones: a trace shows actions of all.
  std::vector<std::unique_ptr<RunTables>> tables_;
  Executor executor_;
  InputNews news_;

  // Of the run that goes on, or was the last.
  const StepAsked* asked_ = nullptr;  // of a step, while it goes on
  RunSpec run_;
  int64_t begin_ = 0;            // of the row, nanoseconds
  int64_t waited_before_ = 0;    // nanoseconds that the rank had waited then
  double processor_before_ = 0;  // seconds that it had computed then
  double update_seconds_ = 0;    // of the last step's optimizers
  double inputs_seconds_ = 0;    // that it took to know the inputs' shapes, where data have any
  Totals totals_{0, 0, 0};
  HostFetch fetch_;  // of what totals_ wants from the device
  std::vector<TensorDigest> gradients_;
  Value histograms_;

  std::vector<std::string> part_names_;  // of the loss; before they are shared only where it is
  bool has_losses_ = false;              // of this rank: their parts' names stay
  bool names_are_shared_ = false;
};

}  // namespace strata
