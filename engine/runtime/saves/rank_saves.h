// RankSaves: loads what a rank's training starts from, and decides when and what the rank saves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/runtime/results.h"
#include "engine/runtime/saves/saver.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

class RankSaves {
 public:
  /// Collective: locks the folder of saves and loads into the stages what job.resume or job.weights
  /// say. `context` and `stages` must outlive this object. `local_ranks`: the number of ranks on
  /// this machine. `steps_per_epoch`: of data.train; 0 if it has no end.
  RankSaves(const RankContext& context, RankStages& stages, int local_ranks,
            int64_t steps_per_epoch);

  /// What the training started from.
  const StartReport& start() const { return start_; }
  /// Collective, after each step. Checks on the save in progress and starts the next one if it is
  /// due by job.save.every or if `asked`; a new save first waits for the previous one. If some rank
  /// has no memory for a copy of its state, the save is left to FinishSave(). Returns the report of
  /// a save that has ended. `peak_memory`: the peak memory of this rank's tensors in the step, in
  /// bytes.
  std::optional<SaveReport> AfterStep(int64_t step, int64_t skipped, bool asked,
                                      int64_t peak_memory);
  /// True if AfterStep() has left a save that is due to FinishSave().
  bool owes() const { return owes_; }
  /// Collective. Like Engine::FinishSave(), but returns nullopt if no save is due.
  std::optional<SaveReport> FinishSave(int64_t step, int64_t skipped);
  /// Collective. Like Engine::WaitForSave().
  std::optional<SaveReport> Wait();
  /// All state of the training on this rank: views of the memory where it is, no copies.
  std::vector<StateTensor> State() const;
  /// Collective, after the stages were rebuilt for other cuts: fills their state from `before`, the
  /// state that each rank had. Returns the number of bytes that were sent between ranks.
  int64_t TakeOver(const std::vector<StateTensor>& before, int64_t step, int64_t skipped);
  /// True if this rank has memory to hold its state twice while layers move.
  bool FitsTwice() const;
  /// Collective. Like Engine::Save().
  SaveReport SaveNow(int64_t step, int64_t skipped);
  /// Collective. Like Engine::SaveBest().
  SaveReport SaveBest(int64_t step, int64_t skipped);

 private:
  TrainingState TrainingAt(int64_t step, int64_t skipped) const;
  void SetStepsDone(int64_t steps);
  void BeginAverages();
  /// The tensors of the state that this rank writes into a save.
  std::vector<StateTensor> OwnState() const;
  /// The tensors of which this rank speaks for all that have them: those that a save holds, or with
  /// `of_base` those of the base of a job with `adapt`, which no save holds.
  std::vector<StateTensor> OwnTensors(bool of_base) const;
  /// Collective: copies the state and starts to write it in the background. Returns false, having
  /// started nothing, if some rank has no memory for a copy.
  bool StartBeside(int64_t step, int64_t skipped);
  /// Collective: saves without a copy and waits; the state must not change meanwhile.
  SaveReport SaveAndWait(Saver& saver, int64_t step, int64_t skipped);
  void FindBest();
  /// True if the rank may use `bytes` more than `beside`: the job's limit allows it, and the
  /// machine has as much available for each of its ranks.
  bool HasRoom(int64_t bytes, int64_t beside) const;

  const RankContext& context_;
  RankStages& stages_;
  const int local_ranks_;
  const int64_t every_;  // steps between two saves; 0 means only at the end
  StartReport start_;
  BeganSteps began_;  // for all parameters of the job
  std::string base_;  // TrainingState::base
  bool took_averages_ = false;
  std::optional<Saver> saver_;  // set if the job has job.save
  std::optional<Saver> best_;   // set if the job has job.save.best
  SaveReport last_;
  bool owes_ = false;  // true if a save of the last step is due
  // The peak memory of a step, without the copy of a save in progress.
  int64_t peak_memory_ = 0;
  int64_t copied_ = 0;  // bytes of that copy
  // True once the warning was logged that saves have no memory beside the training.
  bool has_told_ = false;
};

}  // namespace strata
