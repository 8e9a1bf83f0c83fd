// RankEngine: the engine of one rank, for a process of its own or a thread among others.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/groups/comm_log.h"
#include "engine/comm/groups/current.h"
#include "engine/comm/groups/group.h"
#include "engine/comm/groups/logged_links.h"
#include "engine/comm/transport.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/plan/plan.h"
#include "engine/runtime/batch_source.h"
#include "engine/runtime/interface/engine.h"
#include "engine/runtime/interface/engine_script.h"
#include "engine/runtime/interface/engine_tensors.h"
#include "engine/runtime/saves/saver.h"
#include "engine/runtime/stage/boundaries.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/step/executor.h"
#include "engine/runtime/step/input_news.h"
#include "engine/runtime/step/row_cache.h"
#include "engine/runtime/step/totals.h"
#include "engine/runtime/update/gradient_reducer.h"
#include "engine/runtime/update/optimizer.h"
#include "engine/runtime/update/parameter_table.h"
#include "engine/runtime/update/tie_table.h"
#include "engine/runtime/watch/progress.h"
#include "engine/runtime/watch/tracer.h"
#include "engine/runtime/watch/watchdog.h"
#include "engine/spec/job/job.h"

namespace strata {

/// What surrounds a rank. The watchdog may be somebody else's (null).
struct RankServices {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Progress> progress;
  std::shared_ptr<std::atomic<bool>> stop;  // asked for by RequestStop()
  int local_rank = 0;                       // among the ranks of this machine: chooses the GPU
  int local_ranks = 1;                      // which share its cores
  std::shared_ptr<Watchdog> watchdog;       // the last member: its thread uses the others
};

/// A step: the row runs on the executor; its REDUCE_GRAD sums the stage's gradients over the
/// replicas while other stages still drain, or squares them where there are none; its last STEP
/// sums the Totals over all ranks (one collective a step) and then, as losses and gradients are
/// finite on all of them, runs the optimizers. So no rank updates before all know of the others'
/// gradients; a rank's update overlaps with what others begin the next step with. Where something
/// is not finite, the step's row runs once more under an Examiner, as job.nonfinite says with the
/// update after it or none. An evaluation: the row, then the Totals.
class RankEngine : public Engine, private ExecutorHost {
 public:
  RankEngine(Job job, Plan plan, EngineScript& script, RankServices services);
  ~RankEngine() override;

  int rank() const { return services_.transport->rank(); }
  StepResult TrainStep(MicroBatches* batch) override;
  EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) override;
  EvalResult EvaluateTestData() override;
  int64_t steps_per_epoch() const override;
  const StartReport& start() const override { return start_; }
  SaveReport Save() override;
  void RequestStop() override { *services_.stop = true; }
  void set_record_gradients(bool record) override { record_gradients_ = record; }
  std::vector<TensorDigest> Parameters() override;
  void Abort(const std::string& why) override { services_.transport->Abort(why); }
  std::string Position() const override { return services_.progress->Position(); }
  std::string CommReport() override;
  schedule::Trace TakeTrace() override;
  void Close() override;

 private:
  struct OwnStage {
    std::unique_ptr<Stage> stage;
    std::unique_ptr<GradientReducer> reducer;
    std::unique_ptr<Optimizer> optimizer;
    size_t first_parameter;  // among this rank's
  };
  struct EvalSums;

  // ExecutorHost
  Tensors Input(int m) override;
  Tensors Target(int m) override;
  const std::string& data_source() const override { return *source_; }
  void ReduceTies() override;
  void OnGradients(Stage& stage) override;
  void Step() override;

  void BuildStages();
  void OpenCommLog();
  void OpenTracer();
  void OpenData();
  void TakeStart();
  TrainingState TrainingNow() const;
  std::vector<StateTensor> State();
  std::optional<SaveReport> SaveWhenDue();
  void StartSave();
  BatchOptions Batches(const Batch& batch) const;
  Batch EvaluationBatch() const;
  void Begin(Feed& feed, const std::string& source);
  const Boundaries& BoundariesOf(size_t m);
  void CheckTies();
  void RunStep(MicroBatches* batch, Examiner* examiner);
  void RunRow(const Row& row);
  void KeepState();
  void TakeBackState();
  NonFinite Examine(MicroBatches* batch);
  bool has_finite_weights() const;
  void OnNonFinite(MicroBatches* batch, StepResult& result);
  void SumLosses();
  void FinishGradients();
  void TakeSquares(const OwnStage& own);
  void UpdateStages();
  void TakeLosses();
  int MemoryAccount() const;
  void TakePeakMemory();
  void Evaluate(Feed& feed, const std::string& source, Outputs* outputs, EvalSums& sums);
  EvalResult ResultOf(const EvalSums& sums) const;
  StepResult ResultOfStep(double seconds) const;
  double LrFactorOfStep();
  Totals EmptyTotals() const;
  std::vector<Stage*> StagesByNumber() const;
  OwnStage& Own(const Stage& stage);
  Stage* LastStage() const;

  const Job job_;
  const Plan plan_;
  EngineScript& script_;
  RankServices services_;
  const CurrentRank current_;       // for strata.comm in the script's functions
  Group* const group_of_replicas_;  // null for one replica
  std::shared_ptr<CommLog> comm_log_;
  std::optional<LoggedLinks> logged_links_;  // with comm_log_
  std::optional<Tracer> tracer_;
  const std::vector<int> pipe_ranks_;
  const int pipe_rank_;
  const int replica_;
  const int replicas_;
  const std::shared_ptr<AxisComm> model_axis_;  // null where it has one rank
  const bool speaks_;                           // for its replicas, where all have the same to say
  at::Device device_;
  std::vector<OwnStage> stages_;
  std::optional<ParameterTable> parameters_;
  std::optional<TieTable> ties_;
  std::optional<Executor> executor_;
  BoundaryTable boundaries_;
  RowCache rows_;
  std::optional<InputNews> news_;
  std::unique_ptr<BatchSource> train_source_, test_source_;
  // Where data comes from, for reports; a watchdog may read them at any time.
  const std::string train_name_, test_name_, given_name_;

  int64_t step_ = 0;     // steps done
  int64_t skipped_ = 0;  // of these
  /// Whether the last step was, or has none before it.
  bool was_finite_ = true;
  std::vector<at::Tensor> kept_state_;  // of layers, as it was before the step that runs
  StartReport start_;
  std::optional<Saver> saver_;
  SaveReport last_save_;
  bool record_gradients_ = false;

  // Of the run that goes on.
  Feed* feed_ = nullptr;
  const std::string* source_ = nullptr;
  RunSpec run_;
  Totals totals_;
  std::vector<TensorDigest> gradients_;
};

}  // namespace strata
