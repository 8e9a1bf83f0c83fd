// Tracer: writes down when the actions of a rank run, while they run, without allocating memory. An
// action costs two readings of the clock, and two more where it waits. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/runtime/watch/flight.h"
#include "engine/schedule/trace.h"

namespace strata {

struct Doing;  // progress.h

/// For the rank's thread. Progress tells it what the rank is at, while Record() holds.
class Tracer {
 public:
  /// So many actions of a rank are kept, the last ones; more where one step has more.
  static constexpr size_t kActions = 16384;

  /// `memory`: the bytes that the rank holds now.
  explicit Tracer(std::function<int64_t()> memory) : memory_(std::move(memory)) {}

  /// From now on actions belong to step `step`, which has so many.
  void Record(int64_t step, size_t actions);
  /// Until the next Record() nothing is written down.
  void Pause() { recording_ = false; }

  // Start [Wait Go]* Complete for every action. One without Complete() leaves nothing.
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

  /// The actions of all steps that are there as a whole, oldest first, in the clock's seconds.
  std::vector<schedule::TracedAction> Actions() const;

 private:
  struct Event {
    const Doing* doing = nullptr;
    int64_t step = 0;
    int64_t place = 0;  // in its step
    int64_t start = 0, waited = 0, end = 0;
    int64_t memory = 0;
  };

  const std::function<int64_t()> memory_;
  std::vector<Event> events_;  // a ring
  uint64_t count_ = 0;         // of all that were written down
  bool recording_ = false;
  int64_t step_ = 0;
  int64_t place_ = 0;

  // Of the action that runs.
  const Doing* doing_ = nullptr;
  int64_t start_ = 0;
  int64_t waited_ = 0;
  int64_t waits_since_ = 0;  // 0: it does not wait
};

}  // namespace strata
