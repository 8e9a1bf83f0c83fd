// RankSaves: what a rank's training begins with, and when and what the rank saves of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/runtime/interface/engine.h"
#include "engine/runtime/saves/saver.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

class RankSaves {
 public:
  /// Collective: loads what job.resume or job.weights say into the stages, whose folder of saves is
  /// then locked. Everything must outlive this object.
  /// `local_ranks`: of this machine.
  RankSaves(const RankContext& context, RankStages& stages, int local_ranks);

  /// What the training began with.
  const StartReport& start() const { return start_; }
  /// Collective, after each step: looks how the save that goes on fares, and begins the next one
  /// when its time has come, or `asked` says so. That one waits for the former. Gives the report of
  /// one that has ended.
  /// `peak_memory`: of this rank's tensors, in the step.
  std::optional<SaveReport> AfterStep(int64_t step, int64_t skipped, bool asked,
                                      int64_t peak_memory);
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
  /// The report of a save that the training waited for.
  std::optional<SaveReport> StartBeside(int64_t step, int64_t skipped);
  /// Whether the rank may take so much more than `beside`: the job's limit allows it, and the
  /// machine could hold as much for each of its ranks.
  bool HasRoom(int64_t bytes, int64_t beside) const;

  const RankContext& context_;
  RankStages& stages_;
  const int local_ranks_;
  StartReport start_;
  bool took_averages_ = false;
  std::optional<Saver> saver_;  // with job.save
  std::optional<Saver> best_;   // with job.save.best
  SaveReport last_;
  std::optional<SaveReport> owed_;  // of a second save that ended behind one step
  int64_t peak_memory_ = 0;         // of a step, without the copy of a save beside it
  int64_t copied_ = 0;              // bytes of that copy
  bool has_told_ = false;           // that saves have no room beside the training
};

}  // namespace strata
