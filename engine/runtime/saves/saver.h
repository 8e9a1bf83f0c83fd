// Saver: what one rank does for saves, beside the training.
//
//   Start    copies what the rank owns and lets a thread write the copy: the training goes on. Or,
//            without a copy, lets it write what is there, and the training must wait
//   Poll     at the end of each step; once all ranks have written, rank 0's thread makes the save
//            count; once it does, all ranks know
//
// A save that fails (a full disk) leaves the last one in place and the training going: whoever
// trains is told by the report, and the next save tries again.
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
#include "engine/runtime/engine.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

class Saver {
 public:
  /// Rank 0 opens the folder: throws as SaveFolder(), and ConfigError when there are saves already
  /// that the training does not go on from (`goes_on`). Transport and progress must outlive it.
  Saver(const SaveSpec& spec, bool goes_on, Transport& transport, Progress& progress);
  /// Gives up what is not complete.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool pending() const { return phase_ != Phase::kIdle; }
  /// Of the save that is pending, or was the last.
  int64_t step() const { return step_; }

  /// Collective. `owned`: what this rank alone writes. What lies on an accelerator is always copied
  /// to the host. Without `copies`, the rest is written from where it lies, and must not change
  /// until Finish(). REQUIRES: !pending().
  void Start(const TrainingState& training, const std::vector<StateTensor>& owned, bool copies);
  /// Collective, and quick: how the save ended, or none while it goes on. The same on all ranks.
  /// REQUIRES: pending().
  std::optional<SaveReport> Poll();
  /// Collective: polls until it has ended.
  SaveReport Finish();

 private:
  enum class Phase { kIdle, kWriting, kCommitting };

  /// Runs `work` on a thread; it gives a map. What it throws becomes {error=...}.
  template <class Work>
  void Launch(Work work);
  /// Collective: whether a rank's thread is at work.
  bool IsBusy();
  std::optional<SaveReport> AfterWriting();
  SaveReport AfterCommitting();
  void Commit(const std::vector<std::string>& parts);
  void Discard() const;
  SaveReport ReportOf(const std::string& error);

  Transport& transport_;
  Progress& progress_;
  std::optional<SaveFolder> folder_;  // rank 0's
  Phase phase_ = Phase::kIdle;
  int64_t step_ = -1;
  TrainingState training_;
  std::string temporary_;  // the folder that is written to; "" while there is none
  std::chrono::steady_clock::time_point start_;
  bool copies_ = false;
  std::vector<StateTensor> written_;  // copies, or what the rank owns
  std::atomic<bool> cancelled_ = false;
  std::future<std::string> work_;  // JSON; the last member: its thread uses the others
};

}  // namespace strata
