// RankSaves: what a rank's training begins with, and when and what the rank saves of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/saves/saver.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

class RankSaves {
 public:
  /// Collective: loads what job.resume or job.weights say into the stages, whose folder of saves is
  /// then locked. Everything must outlive this object.
  /// `local_ranks`: of this machine. `steps_per_epoch`: of data.train; 0 without an end.
  RankSaves(const RankContext& context, RankStages& stages, int local_ranks,
            int64_t steps_per_epoch);

  /// What the training began with.
  const StartReport& start() const { return start_; }
  /// Collective, after each step: looks how the save that goes on fares, and begins the next one
  /// when its time has come, or `asked` says so. That one waits for the former. Where a rank has no
  /// room for a copy it is left to FinishSave(). Gives the report of one that has ended.
  /// `peak_memory`: of this rank's tensors, in the step.
  std::optional<SaveReport> AfterStep(int64_t step, int64_t skipped, bool asked,
                                      int64_t peak_memory);
  /// Whether AfterStep() has left a save that is due.
  bool owes() const { return owes_; }
  /// Collective; as Engine::FinishSave(). None where no save is owed.
  std::optional<SaveReport> FinishSave(int64_t step, int64_t skipped);
  /// Collective; as Engine::WaitForSave().
  std::optional<SaveReport> Wait();
  /// Everything that this rank has of the training, where it lies.
  std::vector<StateTensor> State() const;
  /// Collective, once stages were built anew: they go on with `before`, what all ranks had. The
  /// bytes that went from rank to rank.
  int64_t TakeOver(const std::vector<StateTensor>& before, int64_t step, int64_t skipped);
  /// Whether this rank may have its state twice, while layers move.
  bool FitsTwice() const;
  /// Collective; as Engine::Save().
  SaveReport SaveNow(int64_t step, int64_t skipped);
  /// Collective; as Engine::SaveBest().
  SaveReport SaveBest(int64_t step, int64_t skipped);

 private:
  TrainingState TrainingAt(int64_t step, int64_t skipped) const;
  void SetStepsDone(int64_t steps);
  void BeginAverages();
  /// What this rank writes.
  std::vector<StateTensor> OwnState() const;
  /// False where a rank has no room for a copy: nothing has begun.
  bool StartBeside(int64_t step, int64_t skipped);
  /// Without a copy: nothing may change meanwhile.
  SaveReport SaveAndWait(Saver& saver, int64_t step, int64_t skipped);
  void FindBest();
  /// Whether the rank may take so much more than `beside`: the job's limit allows it, and the
  /// machine could hold as much for each of its ranks.
  bool HasRoom(int64_t bytes, int64_t beside) const;

  const RankContext& context_;
  RankStages& stages_;
  const int local_ranks_;
  const int64_t every_;  // steps between two saves; 0 = only at the end
  StartReport start_;
  BeganSteps began_;  // of all parameters of the job
  bool took_averages_ = false;
  std::optional<Saver> saver_;  // with job.save
  std::optional<Saver> best_;   // with job.save.best
  SaveReport last_;
  bool owes_ = false;        // a save of the last step
  int64_t peak_memory_ = 0;  // of a step, without the copy of a save beside it
  int64_t copied_ = 0;       // bytes of that copy
  bool has_told_ = false;    // that saves have no room beside the training
};

}  // namespace strata
