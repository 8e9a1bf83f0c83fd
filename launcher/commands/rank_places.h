// RankPlaces: where the ranks of a job are that start here, and where they meet the others.
#pragma once

#include <string>

#include "engine/base/fd.h"
#include "engine/comm/place.h"
#include "launcher/place/placement.h"
#include "launcher/process/job_process.h"

namespace strata::launcher {

class RankPlaces {
 public:
  explicit RankPlaces(Placement placement) : placement_(std::move(placement)) {}

  const Placement& placement() const { return placement_; }
  bool has_rank_0() const { return placement_.first.rank == 0; }

  /// Which ranks start here, of so many processes in all.
  RankRange RangeOf(int processes) const;
  /// In the starter: where processes that are all on this machine meet, a file in memory, and their
  /// secret. Ranks of several machines have a store.
  void OpenMeeting(const RankRange& range);
  /// In a process whose children now have what only they need: only rank 0 may hold the socket of a
  /// store, so that the store ends with rank 0.
  void OnForked();
  /// Of a rank that starts here.
  RankPlace Of(int rank) const;

 private:
  Placement placement_;
  // Made in the starter; the ranks inherit it through fork():
  RankRange range_;
  Fd store_;
  std::string secret_;
};

}  // namespace strata::launcher
