// Saver: writes the saves of one rank in the background while the training continues.
//
//   Start    copies this rank's part of the state and starts a thread that writes the copy; the
//            training continues. Without a copy the thread writes the state itself, and the
//            training must wait.
//   Poll     at the end of each step. Once all ranks have written their parts, a thread of rank 0
//            commits the save, that is, makes it the latest; then all ranks learn that it counts.
//
// If a save fails (a full disk), the previous one stays in place and the training continues. The
// report says so, and the next save tries again.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/save_folder.h"
#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/runtime/results.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

class Saver {
 public:
  /// Rank 0 opens the folder. Throws as SaveFolder() does, and ConfigError if the folder has saves
  /// from which this training does not resume (`goes_on` is false). `transport` and `progress` must
  /// outlive this object.
  Saver(const SaveSpec& spec, bool goes_on, Transport& transport, Progress& progress);
  /// Discards a save that is not complete.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool pending() const { return phase_ != Phase::kIdle; }
  /// The step of the save in progress, or of the last one; -1 before the first.
  int64_t step() const { return step_; }

  /// Collective: starts a save. `owned`: the tensors that only this rank writes. Tensors on an
  /// accelerator are always copied to the host. If `copies` is false, other tensors are written
  /// from where they are and must not change until Finish() returns. REQUIRES: !pending().
  void Start(const TrainingState& training, const std::vector<StateTensor>& owned, bool copies);
  /// Collective, does not block on the disk: returns the report if the save has ended, equal on all
  /// ranks; nullopt while it is in progress. REQUIRES: pending().
  std::optional<SaveReport> Poll();
  /// Collective: polls until the save has ended, and returns its report.
  SaveReport Finish();

 private:
  enum class Phase { kIdle, kWriting, kCommitting };

  /// Runs `work`, which returns a map, on a thread. Exceptions become {error=...}.
  template <class Work>
  void Launch(Work work);
  /// Collective: true if the thread of any rank is still working.
  bool IsBusy();
  std::optional<SaveReport> AfterWriting();
  SaveReport AfterCommitting();
  void Commit(const std::vector<std::string>& parts);
  void Discard() const;
  SaveReport ReportOf(const std::string& error);

  Transport& transport_;
  Progress& progress_;
  std::optional<SaveFolder> folder_;  // on rank 0
  Phase phase_ = Phase::kIdle;
  int64_t step_ = -1;
  TrainingState training_;
  std::string temporary_;  // the folder that is written to; "" if there is none
  std::chrono::steady_clock::time_point start_;
  bool copies_ = false;
  std::vector<StateTensor> written_;  // copies of what the rank owns, or the originals
  std::atomic<bool> cancelled_ = false;
  std::future<std::string> work_;  // JSON; must be the last member: its thread uses the others
};

}  // namespace strata
