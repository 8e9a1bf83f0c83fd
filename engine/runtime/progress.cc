#include "engine/runtime/progress.h"

#include "engine/base/text.h"

namespace strata {

std::string Progress::Position() const {
  const Doing* doing = doing_.load(std::memory_order_acquire);
  if (!doing) return Str("rank ", rank_, ": at rest");
  const std::string at = Str("rank ", rank_, " (stage ", doing->stage, "): ", doing->what);
  switch (phase_.load(std::memory_order_acquire)) {
    case kComputing:
      return at;
    case kWaiting:
      return Str(at, ", waiting for rank ", awaited_.load(std::memory_order_relaxed));
    case kWaitingForAll:
      return Str(at, ", waiting for all ranks");
    case kReadingData:
      return Str(at, ", reading data from ", *source_.load(std::memory_order_relaxed));
  }
  return at;
}

}  // namespace strata
