// Progress: what a rank does right now. Written by the rank's own thread at the cost of a few
// plain stores, read by any other. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/runtime/watch/fault.h"
#include "engine/runtime/watch/flight.h"
#include "engine/runtime/watch/tracer.h"

namespace strata {

/// Something that a rank can be at: "1F3" of stage 1.
struct Doing {
  int stage = -1;  ///< -1: the whole rank's, as START is, or that of the action which goes on
  std::string what;
};

class Progress {
 public:
  /// `flight`: where the rank's actions are noted; null: in memory of its own.
  explicit Progress(int rank, std::optional<Fault> fault = {}, FlightRing* flight = nullptr)
      : rank_(rank),
        fault_(std::move(fault)),
        own_flight_(flight ? nullptr : std::make_unique<FlightRing>()),
        flight_(flight ? *flight : *own_flight_) {}

  /// The rank's first stage, once it is known: where it is with what is the whole rank's.
  void set_stage(int stage) { stage_.store(stage, std::memory_order_relaxed); }

  // For the rank's thread. What the pointers show must stay until Rest(), or for ever.

  /// The thread is the rank's; it belongs to the system's number.
  void set_thread(int thread) { thread_.store(thread, std::memory_order_relaxed); }
  /// Step `step` of the training begins.
  void BeginStep(int64_t step);
  /// It has ended.
  void EndStep();
  /// Between the two a program's row runs: its actions are much alike. An evaluation's, and those
  /// of a text, are not what the median of steps tells about.
  void set_in_row(bool in_row) { in_row_.store(in_row, std::memory_order_relaxed); }

  /// Who writes down when all this happens; null: nobody.
  void set_tracer(Tracer* tracer) { tracer_ = tracer; }

  void Start(const Doing* doing) {
    phase_.store(kComputing, std::memory_order_relaxed);
    doing_.store(doing, std::memory_order_release);
    flight_.Start(doing->what, doing->stage >= 0 ? doing->stage : stage_.load());
    if (fault_) fault_->Reach(doing->what);
    if (tracer_) tracer_->Start(doing);
  }
  /// The action that was started is done; the next one may take its time.
  void Complete() {
    completed_.fetch_add(1, std::memory_order_relaxed);
    flight_.End();
    if (tracer_) tracer_->Complete();
  }
  /// Until Compute(), the action waits for a message from `rank`.
  void WaitFor(int rank) {
    awaited_.store(rank, std::memory_order_relaxed);
    Wait(kWaiting, rank);
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
    flight_.Go();
    if (tracer_) tracer_->Go();
  }
  /// Nothing to do until the next Start().
  void Rest() {
    flight_.End();
    doing_.store(nullptr, std::memory_order_release);
  }
  /// Nothing to do any more: the action failed. The position stays, for those who ask why.
  void Fail() { failed_.store(true, std::memory_order_release); }

  // For anybody.

  bool resting() const {
    return doing_.load(std::memory_order_acquire) == nullptr ||
           failed_.load(std::memory_order_acquire);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool reading_data() const { return phase_.load(std::memory_order_acquire) == kReadingData; }
  /// It is at work and waits for no other rank.
  bool computing() const {
    return !resting() && phase_.load(std::memory_order_acquire) == kComputing;
  }
  bool in_row() const { return in_row_.load(std::memory_order_relaxed); }
  /// The seconds of a step, once some are known: the median of the last ones.
  std::optional<double> median_step() const;
  /// 0 before set_thread().
  int thread() const { return thread_.load(std::memory_order_relaxed); }
  FlightRing& flight() const { return flight_; }
  /// Grows with every completed action.
  uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  /// "rank 1 (stage 1): 1F3, waiting for rank 0"; "rank 1 (stage 1): 1STEP, waiting for rank 3 in
  /// REDUCE_GRAD of stage 1"; "rank 1 (stage 1): 1F3, waiting for rank 0 in MODEL_AXIS"; "rank 1
  /// (stage 1): SAVE, waiting for all ranks"; "rank 1: START" while its stage is not known.
  std::string Position() const;

 private:
  enum Phase { kComputing, kWaiting, kWaitingBeside, kWaitingForAll, kReadingData };

  static constexpr size_t kSteps = 15;  // of which the median is taken

  void Wait(Phase phase, int peer = -1) {
    phase_.store(phase, std::memory_order_release);
    flight_.Wait(peer);
    if (tracer_) tracer_->Wait();
  }

  const int rank_;
  const std::optional<Fault> fault_;
  const std::unique_ptr<FlightRing> own_flight_;
  FlightRing& flight_;
  std::atomic<int> stage_ = -1;  // -1: not known yet
  std::atomic<int> thread_ = 0;
  std::atomic<bool> in_row_ = false;
  int64_t step_begin_ = 0;  // of the rank's thread alone
  std::atomic<uint64_t> steps_ = 0;
  std::array<std::atomic<int64_t>, kSteps> step_nanoseconds_ = {};
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
