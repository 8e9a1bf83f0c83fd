// Progress: what a rank does right now. The rank's own thread writes it, at the cost of a few plain
// stores; any other thread may read it. Torch-free.
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

/// An action of a rank, "1F3" of stage 1, or any other work of the whole rank, "SAVE".
struct Doing {
  /// -1 for work of the whole rank, such as START, and for work inside the current action.
  int stage = -1;
  std::string what;
};

class Progress {
 public:
  /// `flight`: the ring in which the rank's actions are recorded; null: an own one.
  explicit Progress(int rank, std::optional<Fault> fault = {}, FlightRing* flight = nullptr)
      : rank_(rank),
        fault_(std::move(fault)),
        own_flight_(flight ? nullptr : std::make_unique<FlightRing>()),
        flight_(flight ? *flight : *own_flight_) {}

  /// Sets the rank's first stage, once known. Positions show it for work of the whole rank.
  void set_stage(int stage) { stage_.store(stage, std::memory_order_relaxed); }

  // For the rank's thread. What the pointers refer to must exist until Rest(), unless stated
  // otherwise.

  /// Sets the rank's thread, by its number in the operating system.
  void set_thread(int thread) { thread_.store(thread, std::memory_order_relaxed); }
  /// The training step `step` begins.
  void BeginStep(int64_t step);
  /// The training step has ended.
  void EndStep();
  /// True while a training step's row runs. Its actions take similar times, so the median step is a
  /// measure for them; it is not for those of evaluations and texts.
  void set_in_row(bool in_row) { in_row_.store(in_row, std::memory_order_relaxed); }

  /// Sets the tracer that records when all this happens; null for none.
  void set_tracer(Tracer* tracer) { tracer_ = tracer; }

  void Start(const Doing* doing) {
    phase_.store(kComputing, std::memory_order_relaxed);
    doing_.store(doing, std::memory_order_release);
    flight_.Start(doing->what, doing->stage >= 0 ? doing->stage : stage_.load());
    if (fault_) fault_->Reach(doing->what);
    if (tracer_) tracer_->Start(doing);
  }
  /// The action that was started is complete; the time limit of a hang starts anew.
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
  /// Until Compute(), the action waits for `what`, which runs in the background. `*rank` is the
  /// rank for which `what` waits at any time; -1 if unknown.
  void WaitFor(const Doing* what, const std::atomic<int>* rank) {
    beside_.store(what, std::memory_order_relaxed);
    awaited_beside_.store(rank, std::memory_order_relaxed);
    Wait(kWaitingBeside);
  }
  void WaitForAll() { Wait(kWaitingForAll); }
  /// Until Compute(), the action runs a data source, perhaps a user's function.
  void ReadData(const std::string* source) {
    source_.store(source, std::memory_order_relaxed);
    phase_.store(kReadingData, std::memory_order_release);
  }
  void Compute() {
    phase_.store(kComputing, std::memory_order_release);
    flight_.Go();
    if (tracer_) tracer_->Go();
  }
  /// The rank has nothing to do until the next Start().
  void Rest() {
    flight_.End();
    doing_.store(nullptr, std::memory_order_release);
  }
  /// The rank's action failed. The position stays readable for reports.
  void Fail() { failed_.store(true, std::memory_order_release); }

  // For any thread.

  bool resting() const {
    return doing_.load(std::memory_order_acquire) == nullptr ||
           failed_.load(std::memory_order_acquire);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool reading_data() const { return phase_.load(std::memory_order_acquire) == kReadingData; }
  /// True if the rank works and does not wait for another rank.
  bool computing() const {
    return !resting() && phase_.load(std::memory_order_acquire) == kComputing;
  }
  bool in_row() const { return in_row_.load(std::memory_order_relaxed); }
  /// The median seconds of the last steps, once enough are known.
  std::optional<double> median_step() const;
  /// 0 before set_thread().
  int thread() const { return thread_.load(std::memory_order_relaxed); }
  FlightRing& flight() const { return flight_; }
  /// The number of completed actions.
  uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  /// The position in words: "rank 1 (stage 1): 1F3, waiting for rank 0"; "rank 1 (stage 1): 1STEP,
  /// waiting for rank 3 in REDUCE_GRAD of stage 1"; "rank 1 (stage 1): 1F3, waiting for rank 0 in
  /// MODEL_AXIS"; "rank 1 (stage 1): SAVE, waiting for all ranks"; "rank 1: START" while its stage
  /// is unknown.
  std::string Position() const;

 private:
  enum Phase { kComputing, kWaiting, kWaitingBeside, kWaitingForAll, kReadingData };

  static constexpr size_t kSteps = 15;  // number of steps of which the median is taken

  void Wait(Phase phase, int peer = -1) {
    phase_.store(phase, std::memory_order_release);
    flight_.Wait(peer);
    if (tracer_) tracer_->Wait();
  }

  const int rank_;
  const std::optional<Fault> fault_;
  const std::unique_ptr<FlightRing> own_flight_;
  FlightRing& flight_;
  std::atomic<int> stage_ = -1;  // -1 until set_stage()
  std::atomic<int> thread_ = 0;
  std::atomic<bool> in_row_ = false;
  int64_t step_begin_ = 0;  // used by the rank's thread only
  std::atomic<uint64_t> steps_ = 0;
  std::array<std::atomic<int64_t>, kSteps> step_nanoseconds_ = {};
  Tracer* tracer_ = nullptr;
  std::atomic<const Doing*> doing_ = nullptr;  // null while the rank rests
  std::atomic<bool> failed_ = false;
  std::atomic<Phase> phase_ = kComputing;
  std::atomic<int> awaited_ = -1;
  std::atomic<const Doing*> beside_ = nullptr;
  std::atomic<const std::atomic<int>*> awaited_beside_ = nullptr;
  std::atomic<const std::string*> source_ = nullptr;
  std::atomic<uint64_t> completed_ = 0;
};

/// While this object exists, the rank does `doing` and is watched. If an exception ends its scope,
/// the position stays.
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

/// The same for work that all ranks do together: the rank waits for all others.
class AtMeeting : public AtWork {
 public:
  AtMeeting(Progress& progress, const Doing& doing) : AtWork(progress, doing) {
    progress_.WaitForAll();
  }
};

}  // namespace strata
