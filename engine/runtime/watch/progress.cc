// The position in words. Another thread reads it while the rank goes on.
#include "engine/runtime/watch/progress.h"

#include "engine/base/text.h"

namespace strata {

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
