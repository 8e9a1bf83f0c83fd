// Tracer: records when the actions of a rank run, without allocating memory while they run. An
// action costs two readings of the clock, and two more if it waits. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/runtime/watch/flight.h"
#include "engine/schedule/trace.h"

namespace strata {

struct Doing;  // progress.h

/// Used by the rank's thread. Progress forwards the rank's actions to it. It records between
/// Record() and Pause().
class Tracer {
 public:
  /// The number of last actions that are kept; more if two steps have more.
  static constexpr size_t kActions = 16384;

  /// `memory`: returns the bytes that the rank holds now.
  explicit Tracer(std::function<int64_t()> memory) : memory_(std::move(memory)) {}

  /// From now on actions belong to step `step`, whose row has `actions` actions.
  void Record(int64_t step, size_t actions);
  /// Stops recording until the next Record().
  void Pause() { recording_ = false; }

  // Order of calls for an action: Start [Wait Go]* Complete. An action without Complete() is not
  // recorded.
  void Start(const Doing* doing) {
    doing_ = doing;
    waited_ = waits_since_ = 0;
    start_ = FlightRing::Now();
  }
  void Wait() {
    if (waits_since_ == 0) waits_since_ = FlightRing::Now();
  }
  void Go() {
    if (waits_since_ == 0) return;
    waited_ += FlightRing::Now() - waits_since_;
    waits_since_ = 0;
  }
  void Complete();

  /// Returns the actions of all steps that are complete in the ring, oldest first, with times in
  /// seconds.
  std::vector<schedule::TracedAction> Actions() const;

 private:
  struct Event {
    const Doing* doing = nullptr;
    int64_t step = 0;
    int64_t place = 0;  // index within the step
    int64_t start = 0, waited = 0, end = 0;
    int64_t memory = 0;
  };

  const std::function<int64_t()> memory_;
  std::vector<Event> events_;  // a ring buffer
  uint64_t count_ = 0;         // number of all events so far
  bool recording_ = false;
  int64_t step_ = 0;
  int64_t place_ = 0;

  // State of the current action.
  const Doing* doing_ = nullptr;
  int64_t start_ = 0;
  int64_t waited_ = 0;
  int64_t waits_since_ = 0;  // 0 while it does not wait
};

}  // namespace strata
