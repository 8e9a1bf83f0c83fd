// Progress: what a rank does right now. Written by the rank's own thread at the cost of a few
// plain stores, read by any other. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "engine/runtime/watch/fault.h"
#include "engine/runtime/watch/tracer.h"

namespace strata {

/// Something that a rank can be at: "1F3" of stage 1.
struct Doing {
  int stage = -1;  ///< -1: the whole rank's, as START is, or that of the action which goes on
  std::string what;
};

class Progress {
 public:
  explicit Progress(int rank, std::optional<Fault> fault = {})
      : rank_(rank), fault_(std::move(fault)) {}

  /// The rank's first stage, once it is known: where it is with what is the whole rank's.
  void set_stage(int stage) { stage_.store(stage, std::memory_order_relaxed); }

  // For the rank's thread. What the pointers show must stay until Rest(), or for ever.

  /// Who writes down when all this happens; null: nobody.
  void set_tracer(Tracer* tracer) { tracer_ = tracer; }

  void Start(const Doing* doing) {
    phase_.store(kComputing, std::memory_order_relaxed);
    doing_.store(doing, std::memory_order_release);
    if (fault_) fault_->Reach(doing->what);
    if (tracer_) tracer_->Start(doing);
  }
  /// The action that was started is done; the next one may take its time.
  void Complete() {
    completed_.fetch_add(1, std::memory_order_relaxed);
    if (tracer_) tracer_->Complete();
  }
  /// Until Compute(), the action waits for a message from `rank`.
  void WaitFor(int rank) {
    awaited_.store(rank, std::memory_order_relaxed);
    Wait(kWaiting);
  }
  /// Until Compute(), the action waits for `what`, which goes on beside it. `*rank` is the rank
  /// that `what` itself waits for at any time; -1 = unknown.
  void WaitFor(const Doing* what, const std::atomic<int>* rank) {
    beside_.store(what, std::memory_order_relaxed);
    awaited_beside_.store(rank, std::memory_order_relaxed);
    Wait(kWaitingBeside);
  }
  void WaitForAll() { Wait(kWaitingForAll); }
  /// Until Compute(), the action is in the hands of a data source, perhaps a user's function.
  void ReadData(const std::string* source) {
    source_.store(source, std::memory_order_relaxed);
    phase_.store(kReadingData, std::memory_order_release);
  }
  void Compute() {
    phase_.store(kComputing, std::memory_order_release);
    if (tracer_) tracer_->Go();
  }
  /// Nothing to do until the next Start().
  void Rest() { doing_.store(nullptr, std::memory_order_release); }
  /// Nothing to do any more: the action failed. The position stays, for those who ask why.
  void Fail() { failed_.store(true, std::memory_order_release); }

  // For anybody.

  bool resting() const {
    return doing_.load(std::memory_order_acquire) == nullptr ||
           failed_.load(std::memory_order_acquire);
  }
  bool reading_data() const { return phase_.load(std::memory_order_acquire) == kReadingData; }
  /// Grows with every completed action.
  uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  /// "rank 1 (stage 1): 1F3, waiting for rank 0"; "rank 1 (stage 1): 1STEP, waiting for rank 3 in
  /// REDUCE_GRAD of stage 1"; "rank 1 (stage 1): 1F3, waiting for rank 0 in MODEL_AXIS"; "rank 1
  /// (stage 1): SAVE, waiting for all ranks"; "rank 1: START" while its stage is not known.
  std::string Position() const;

 private:
  enum Phase { kComputing, kWaiting, kWaitingBeside, kWaitingForAll, kReadingData };

  void Wait(Phase phase) {
    phase_.store(phase, std::memory_order_release);
    if (tracer_) tracer_->Wait();
  }

  const int rank_;
  const std::optional<Fault> fault_;
  std::atomic<int> stage_ = -1;  // -1: not known yet
  Tracer* tracer_ = nullptr;
  std::atomic<const Doing*> doing_ = nullptr;  // null while it rests
  std::atomic<bool> failed_ = false;
  std::atomic<Phase> phase_ = kComputing;
  std::atomic<int> awaited_ = -1;
  std::atomic<const Doing*> beside_ = nullptr;
  std::atomic<const std::atomic<int>*> awaited_beside_ = nullptr;
  std::atomic<const std::string*> source_ = nullptr;
  std::atomic<uint64_t> completed_ = 0;
};

/// While one lives, the rank is at `doing`, and watched. An exception that ends it leaves the
/// position.
class AtWork {
 public:
  AtWork(Progress& progress, const Doing& doing) : progress_(progress) { progress_.Start(&doing); }
  ~AtWork() { std::uncaught_exceptions() > exceptions_ ? progress_.Fail() : progress_.Rest(); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 protected:
  Progress& progress_;

 private:
  const int exceptions_ = std::uncaught_exceptions();
};

/// The same for what all ranks do together: the rank waits for all others.
class AtMeeting : public AtWork {
 public:
  AtMeeting(Progress& progress, const Doing& doing) : AtWork(progress, doing) {
    progress_.WaitForAll();
  }
};

}  // namespace strata
