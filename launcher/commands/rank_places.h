// RankPlaces: the ranks of a job that start on this machine, and how they connect to the others.
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

  /// The range of ranks that start here. `processes`: the number of processes of the whole job.
  RankRange RangeOf(int processes) const;
  /// Call in the starter. If all processes are on this machine, makes the file in memory through
  /// which they meet, and their secret. Ranks on several machines use a store instead.
  void OpenMeeting(const RankRange& range);
  /// Closes the socket of the store. Call in a process that has forked the ranks, and in every rank
  /// but 0: only rank 0 may hold this socket, so that the store ends with rank 0.
  void OnForked();
  /// The place of a rank that starts here.
  RankPlace Of(int rank) const;

 private:
  Placement placement_;
  // Made in the starter; the ranks inherit it through fork():
  RankRange range_;
  Fd store_;
  std::string secret_;
};

}  // namespace strata::launcher
