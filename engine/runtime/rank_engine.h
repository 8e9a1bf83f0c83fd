// RankEngine: the engine of one rank, in a process of its own or as one thread among others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/comm_log.h"
#include "engine/comm/current.h"
#include "engine/comm/logged_links.h"
#include "engine/comm/transport.h"
#include "engine/forecast/proved_programs.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/batch_source.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/evaluation.h"
#include "engine/runtime/generation.h"
#include "engine/runtime/saves/rank_saves.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/nonfinite.h"
#include "engine/runtime/step/runner.h"
#include "engine/runtime/update/rank_stages.h"
#include "engine/runtime/watch/progress.h"
#include "engine/runtime/watch/tracer.h"
#include "engine/runtime/watch/watchdog.h"
#include "engine/search/rebalance.h"

namespace strata {

/// The services that a rank uses: transport, progress, requests, proved programs, watchdog.
struct RankServices {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Progress> progress;
  std::shared_ptr<Requests> requests;        // set by RequestStop() and RequestSave()
  int local_rank = 0;                        // index among this machine's ranks: chooses the GPU
  int local_ranks = 1;                       // number of this machine's ranks: they share its cores
  std::shared_ptr<ProvedPrograms> programs;  // of the plan
  /// Null if the rank is watched by another object. Must be the last member: its thread uses the
  /// others.
  std::shared_ptr<Watchdog> watchdog;
};

/// Opens the components of a rank, drives them through steps and closes them. The components do the
/// work: the stages compute and update, the runner runs rows of the program on them, the others
/// decide what a run is for.
class RankEngine : public Engine {
 public:
  RankEngine(Job job, Plan plan, EngineScript& script, RankServices services);
  ~RankEngine() override;

  int rank() const { return services_.transport->rank(); }
  StepResult TrainStep(MicroBatches* batch) override;
  EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) override;
  EvalResult EvaluateTestData() override;
  void PredictBatch(MicroBatches& batch, Outputs& outputs) override;
  std::optional<Predicted> PredictTestData(int64_t part) override;
  TextReport BeginTexts(const TextRequest& request) override;
  std::vector<NewToken> NextTokens() override;
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  const StartReport& start() const override { return start_; }
  SaveReport Save() override;
  SaveReport FinishSave() override;
  std::optional<SaveReport> WaitForSave() override;
  SaveReport SaveBest() override;
  RecutReport Recut(const std::vector<int>& cuts) override;
  void RequestStop() override { services_.requests->stop = true; }
  void RequestSave() override { services_.requests->save = true; }
  void set_record_gradients(bool record) override { record_gradients_ = record; }
  std::vector<TensorDigest> Parameters() override;
  void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) override;
  void Abort(const std::string& why) override;
  std::string Position() const override { return services_.progress->Position(); }
  void NoteStacks() override;
  std::string CommReport() override;
  schedule::Trace TakeTrace() override;
  void Close() override;

 private:
  /// The components that Close() destroys. Each uses those declared before it.
  struct Components {
    Components(const RankContext& context, Links& links, Tracer* tracer, int local_ranks,
               std::shared_ptr<ProvedPrograms> programs);
    int64_t steps_per_epoch() const;

    RankStages stages;
    std::unique_ptr<BatchSource> train_data;  // null if the job has none
    Runner runner;
    Evaluation evaluation;
    Generation generation;
    NonFiniteSteps nonfinite_steps;
    RankSaves saves;
  };

  void OpenCommLog();
  void OpenTracer();
  void MeasureSpeeds();
  Components& components();
  int64_t total_steps() const;
  RecutReport MoveTo(Plan next);
  std::optional<RecutReport> Rebalance(const Totals& totals, const MeasuredStep& step);
  std::optional<RecutReport> MoveToBetterCuts();
  bool CanMove();
  void StayThere();
  std::unique_ptr<Feed> FeedOfStep(MicroBatches* batch);
  StepResult ResultOf(const Totals& totals) const;

  const Job job_;
  Plan plan_;  // MoveTo() may change its cuts
  RankServices services_;
  const CurrentRank current_;  // for strata.comm in the script's functions
  const RankContext context_;
  // Notes collectives in the flight record; keeps statistics if job.comm_log is set.
  std::shared_ptr<CommLog> comm_log_;
  std::optional<LoggedLinks> logged_links_;  // set if job.comm_log is set
  std::optional<Tracer> tracer_;             // set if job.trace is set
  std::unique_ptr<Components> components_;   // null after Close()
  bool times_stages_ = false;                // the same on all ranks
  // On rank 0, until its steps have given the times of the layers.
  std::optional<StepWindow> window_;
  bool rebalances_ = false;               // the same on all ranks
  std::optional<Rebalancer> rebalancer_;  // on rank 0, which decides for all ranks
  // On rank 0: better cuts that were found, to be applied at the end of the next step.
  std::optional<BetterCuts> better_;
  StartReport start_;
  int64_t steps_per_epoch_ = 0;
  int64_t step_ = 0;     // steps that were done
  int64_t skipped_ = 0;  // those of them that were skipped
  bool record_gradients_ = false;
};

}  // namespace strata
