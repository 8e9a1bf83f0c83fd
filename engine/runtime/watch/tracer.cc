// Events are kept in a ring buffer, in which new ones overwrite the oldest.
#include "engine/runtime/watch/tracer.h"

#include <algorithm>

#include "engine/runtime/watch/progress.h"

namespace strata {

void Tracer::Record(int64_t step, size_t actions) {
  recording_ = true;
  step_ = step;
  place_ = 0;
  if (events_.size() >= 2 * actions && !events_.empty()) return;
  // Room for two steps: while a step is recorded, it overwrites the beginning of the one before the
  // last.
  events_.assign(std::max(kActions, 2 * actions), {});
  count_ = 0;
}

void Tracer::Complete() {
  if (!recording_) return;
  const int64_t end = FlightRing::Now();
  events_[count_ % events_.size()] = {doing_, step_, place_++, start_, waited_, end, memory_()};
  ++count_;
}

std::vector<schedule::TracedAction> Tracer::Actions() const {
  std::vector<schedule::TracedAction> actions;
  if (count_ == 0) return actions;
  const auto event_of = [this](uint64_t i) -> const Event& { return events_[i % events_.size()]; };
  uint64_t i = count_ > events_.size() ? count_ - events_.size() : 0;
  while (i < count_ && event_of(i).place != 0) ++i;  // skip a step whose beginning is overwritten
  for (; i < count_; ++i) {
    const Event& event = event_of(i);
    actions.push_back({.step = event.step,
                       .action = schedule::ParseAction(event.doing->what),
                       .start = static_cast<double>(event.start) * 1e-9,
                       .waited = static_cast<double>(event.waited) * 1e-9,
                       .end = static_cast<double>(event.end) * 1e-9,
                       .memory = event.memory});
  }
  return actions;
}

}  // namespace strata
