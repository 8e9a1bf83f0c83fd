// Describes the position in words. Another thread reads it while the rank continues.
#include "engine/runtime/watch/progress.h"

#include <algorithm>
#include <vector>

#include "engine/base/median.h"
#include "engine/base/text.h"

namespace strata {

void Progress::BeginStep(int64_t step) {
  flight_.set_step(step);
  step_begin_ = FlightRing::Now();
}

void Progress::EndStep() {
  const uint64_t done = steps_.load(std::memory_order_relaxed);
  step_nanoseconds_[done % kSteps].store(FlightRing::Now() - step_begin_,
                                         std::memory_order_relaxed);
  steps_.store(done + 1, std::memory_order_release);
}

std::optional<double> Progress::median_step() const {
  constexpr uint64_t kLeast = 3;
  const uint64_t done = steps_.load(std::memory_order_acquire);
  if (done < kLeast) return std::nullopt;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < std::min<size_t>(done, kSteps); ++i) {
    steps.push_back(step_nanoseconds_[i].load(std::memory_order_relaxed));
  }
  return 1e-9 * static_cast<double>(Median(std::move(steps)));
}

std::string Progress::Position() const {
  const Doing* doing = doing_.load(std::memory_order_acquire);
  if (!doing) return Str("rank ", rank_, ": at rest");
  const int stage = doing->stage >= 0 ? doing->stage : stage_.load(std::memory_order_relaxed);
  const std::string of = stage < 0 ? "" : Str(" (stage ", stage, ")");
  const std::string at = Str("rank ", rank_, of, ": ", doing->what);
  switch (phase_.load(std::memory_order_acquire)) {
    case kComputing:
      return at;
    case kWaiting:
      return Str(at, ", waiting for rank ", awaited_.load(std::memory_order_relaxed));
    case kWaitingBeside: {
      const Doing& beside = *beside_.load(std::memory_order_relaxed);
      const int awaited = awaited_beside_.load(std::memory_order_relaxed)->load();
      const std::string whom = awaited < 0 ? "" : Str("rank ", awaited, " in ");
      const std::string whose = beside.stage < 0 ? "" : Str(" of stage ", beside.stage);
      return Str(at, ", waiting for ", whom, beside.what, whose);
    }
    case kWaitingForAll:
      return Str(at, ", waiting for all ranks");
    case kReadingData:
      return Str(at, ", reading data from ", *source_.load(std::memory_order_relaxed));
  }
  return at;
}

}  // namespace strata
